// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/views.h"

#include "gtest/gtest.h"
#include "lockstep/tensor/ops/testing.h"

namespace lockstep {
namespace {

using testing_util::Describe;
using testing_util::ExpectError;
using testing_util::ExpectInvalid;
using testing_util::Meta;
using testing_util::Recorder;

constexpr absl::StatusCode kOutOfRange = absl::StatusCode::kOutOfRange;

TEST(ViewsTest, ViewAndReshape) {
  const Tensor x = Meta({2, 6});
  const Tensor t = Transpose(x, 0, 1);
  EXPECT_EQ(Describe(View(x, {3, -1})), "float32[3, 4]");
  EXPECT_EQ(Describe(View(t, {2, 3, 2})), "float32[2, 3, 2]/[3, 1, 6]");
  ExpectInvalid("View: x of shape [6, 2] with strides [1, 6] cannot be seen as [12] without a copy",
                [&] { View(t, {12}); });
  ExpectInvalid("View: shape [5, -1] does not hold 12 elements", [&] { View(x, {5, -1}); });
  Recorder recorder;
  EXPECT_EQ(Describe(Reshape(t, {2, 3, 2})), "float32[2, 3, 2]/[3, 1, 6]");
  EXPECT_EQ(recorder.Ops(), "View");
  recorder.Clear();
  EXPECT_EQ(Describe(Reshape(t, {-1})), "float32[12]");
  EXPECT_EQ(recorder.Ops(), "Clone View");
  EXPECT_EQ(Describe(Reshape(Meta({0, 3}), {3, 0, 2})), "float32[3, 0, 2]");
  EXPECT_EQ(Describe(Reshape(Meta({}), {1, 1})), "float32[1, 1]");
  ExpectInvalid("Reshape: more than one -1", [&] { Reshape(x, {-1, -1}); });
  ExpectInvalid("View: x is undefined", [] { View(Tensor(), {1}); });
  ExpectInvalid("Reshape: x is undefined", [] { Reshape(Tensor(), {1}); });
}

TEST(ViewsTest, FlattenUnsqueezeSqueeze) {
  const Tensor x = Meta({2, 3, 5});
  EXPECT_EQ(Describe(Flatten(x)), "float32[30]");
  EXPECT_EQ(Describe(Flatten(x, 1)), "float32[2, 15]");
  EXPECT_EQ(Describe(Flatten(x, 0, -2)), "float32[6, 5]");
  EXPECT_EQ(Describe(Flatten(x, 1, 1)), "float32[2, 3, 5]");
  EXPECT_EQ(Describe(Flatten(Meta({}))), "float32[1]");
  ExpectInvalid("Flatten: start 2 comes after end 1", [&] { Flatten(x, 2, 1); });
  ExpectError(kOutOfRange, "Flatten: dimension 3", [&] { Flatten(x, 3); });
  ExpectInvalid("Flatten: x is undefined", [] { Flatten(Tensor()); });

  EXPECT_EQ(Describe(Unsqueeze(x, 0)), "float32[1, 2, 3, 5]");
  EXPECT_EQ(Describe(Unsqueeze(x, -1)), "float32[2, 3, 5, 1]");
  EXPECT_EQ(Describe(Unsqueeze(x, 3)), "float32[2, 3, 5, 1]");
  EXPECT_EQ(Unsqueeze(Transpose(x, 0, 2), 1).shape(), (Shape{5, 1, 3, 2}));
  ExpectError(kOutOfRange, "Unsqueeze: dimension 4 is not in [-4, 4)", [&] { Unsqueeze(x, 4); });
  ExpectInvalid("Unsqueeze: x is undefined", [] { Unsqueeze(Tensor(), 0); });

  EXPECT_EQ(Describe(Squeeze(Meta({2, 1, 5}), -2)), "float32[2, 5]");
  ExpectInvalid("Squeeze: dimension 1 of shape [2, 3, 5] has size 3", [&] { Squeeze(x, 1); });
  ExpectInvalid("Squeeze: x is zero-dimensional", [] { Squeeze(Meta({}), 0); });
  ExpectInvalid("Squeeze: x is undefined", [] { Squeeze(Tensor(), 0); });
}

TEST(ViewsTest, PermuteTransposeExpand) {
  const Tensor x = Meta({2, 3, 5});
  EXPECT_EQ(Describe(Permute(x, {-1, 0, 1})), "float32[5, 2, 3]/[1, 15, 5]");
  EXPECT_EQ(Describe(Permute(Meta({}), {})), "float32[]");
  ExpectInvalid("Permute: dims [0, 0, 1]", [&] { Permute(x, {0, 0, 1}); });
  ExpectInvalid("must name each of the 3 dimensions", [&] { Permute(x, {0, 1}); });
  ExpectInvalid("must name each of the 0 dimensions", [] { Permute(Meta({}), {0}); });
  ExpectError(kOutOfRange, "Permute: dimension 3", [&] { Permute(x, {0, 1, 3}); });
  ExpectInvalid("Permute: x is undefined", [] { Permute(Tensor(), {}); });

  EXPECT_EQ(Describe(Transpose(x, 0, -1)), "float32[5, 3, 2]/[1, 5, 15]");
  EXPECT_EQ(Describe(Transpose(x, 1, 1)), "float32[2, 3, 5]");
  EXPECT_EQ(Describe(Transpose(Meta({}), 0, -1)), "float32[]");
  ExpectError(kOutOfRange, "Transpose: dimension -4", [&] { Transpose(x, 0, -4); });
  ExpectInvalid("Transpose: x is undefined", [] { Transpose(Tensor(), 0, 1); });

  EXPECT_EQ(Describe(Expand(Meta({3, 1}), {2, -1, 5})), "float32[2, 3, 5]/[0, 1, 0]");
  EXPECT_EQ(Describe(Expand(Meta({}), {2})), "float32[2]/[0]");
  ExpectInvalid("Expand: -1 in shape [-1, 3] keeps a size, but x of shape [3] has no dimension",
                [] {
                  Expand(Meta({3}), {-1, 3});
                });
  ExpectInvalid("Expand: shape [3] does not broadcast to [4]", [] { Expand(Meta({3}), {4}); });
  ExpectInvalid("Expand: negative size -2", [] { Expand(Meta({1}), {-2}); });
  ExpectInvalid("Expand:", [] { Expand(Meta({1, 3}), {-1}); });
  ExpectInvalid("Expand: x is undefined", [] { Expand(Tensor(), {2}); });
}

// Python's range(7)[start:end:step].
TEST(ViewsTest, SlicesAsPython) {
  const Tensor x = Meta({7, 2});
  const auto text = [&](int64_t start, int64_t end, int64_t step) {
    return Describe(Slice(x, 0, start, end, step));
  };
  EXPECT_EQ(text(2, 5, 1), "float32[3, 2]+4");
  EXPECT_EQ(text(1, INT64_MAX, 3), "float32[2, 2]/[6, 1]+2");
  EXPECT_EQ(text(-2, INT64_MAX, 1), "float32[2, 2]+10");
  EXPECT_EQ(text(-100, -5, 1), "float32[2, 2]");
  EXPECT_EQ(text(5, 2, 1), "float32[0, 2]");
  EXPECT_EQ(text(9, 12, 1), "float32[0, 2]");
  EXPECT_EQ(text(INT64_MIN, INT64_MAX, INT64_MAX), "float32[1, 2]");
  EXPECT_EQ(Describe(Slice(x, -1, 1)), "float32[7, 1]/[2, 1]+1");
  ExpectInvalid("Slice: step 0 must be at least 1", [&] { text(0, 7, 0); });
  ExpectError(kOutOfRange, "Slice: dimension 2", [&] { Slice(x, 2, 0); });
  ExpectInvalid("Slice: x is zero-dimensional", [] { Slice(Meta({}), 0, 0); });
  ExpectInvalid("Slice: x is undefined", [] { Slice(Tensor(), 0, 0); });
}

TEST(ViewsTest, Select) {
  const Tensor x = Meta({7, 2});
  EXPECT_EQ(Describe(Select(x, 0, 3)), "float32[2]+6");
  EXPECT_EQ(Describe(Select(x, 1, -1)), "float32[7]/[2]+1");
  EXPECT_EQ(Describe(Select(Select(x, 0, 0), 0, 1)), "float32[]+1");
  ExpectError(kOutOfRange, "Select: index 7 is not in [-7, 7) of dimension 0 of shape [7, 2]",
              [&] { Select(x, 0, 7); });
  ExpectError(kOutOfRange, "index 0", [] { Select(Meta({0}), 0, 0); });
  ExpectInvalid("Select: x is undefined", [] { Select(Tensor(), 0, 0); });
}

TEST(ViewsTest, SplitAndChunk) {
  const Tensor x = Meta({7, 2});
  EXPECT_EQ(Describe(Split(x, 3)), "float32[3, 2] float32[3, 2]+6 float32[1, 2]+12");
  EXPECT_EQ(Describe(Split(x, 7)), "float32[7, 2]");
  EXPECT_EQ(Describe(Split(x, 100)), "float32[7, 2]");
  EXPECT_EQ(Describe(Split(x, 1, -1)), "float32[7, 1]/[2, 1] float32[7, 1]/[2, 1]+1");
  EXPECT_EQ(Describe(Split(Meta({0}), 3)), "float32[0]");
  EXPECT_EQ(Describe(Split(Meta({0}), 0)), "float32[0]");
  EXPECT_EQ(Describe(Split(x, {5, 0, 2}, 0)), "float32[5, 2] float32[0, 2] float32[2, 2]+10");
  ExpectInvalid("Split: sizes [5, 3] must not be negative and must add up to 7", [&] {
    Split(x, {5, 3}, 0);
  });
  ExpectInvalid("Split: size 0 of the pieces", [&] { Split(x, 0); });
  ExpectInvalid("Split: x is undefined", [] { Split(Tensor(), 1); });
  ExpectInvalid("Split: x is undefined", [] { Split(Tensor(), {1, 2}, 0); });

  // torch.chunk: ceil(7 / 3) = 3 each; 5 wanted pieces of 2 make 4.
  EXPECT_EQ(Describe(Chunk(x, 3)), "float32[3, 2] float32[3, 2]+6 float32[1, 2]+12");
  EXPECT_EQ(Chunk(x, 5).size(), 4u);
  EXPECT_EQ(Chunk(x, 1).size(), 1u);
  EXPECT_EQ(Chunk(Meta({0}), 3).size(), 3u);
  ExpectInvalid("Chunk: count 0 must be at least 1", [&] { Chunk(x, 0); });
  ExpectInvalid("Chunk: x is undefined", [] { Chunk(Tensor(), 1); });
  ExpectError(kOutOfRange, "Chunk: dimension 2", [&] { Chunk(x, 1, 2); });
}

TEST(ViewsTest, Detach) {
  const Tensor x = Transpose(Meta({2, 3}), 0, 1);
  const Tensor y = Detach(x);
  EXPECT_FALSE(y.IsSame(x));
  EXPECT_EQ(Describe(y), Describe(x));
  ExpectInvalid("Detach: x is undefined", [] { Detach(Tensor()); });
}

}  // namespace
}  // namespace lockstep
