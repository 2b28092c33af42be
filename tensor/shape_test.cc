// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/shape.h"

#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing.h"

namespace lockstep {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// Storage positions of all elements in row-major order.
std::vector<int64_t> Positions(ShapeSpan shape, ShapeSpan strides) {
  std::vector<int64_t> positions{0};
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> next;
    for (const int64_t base : positions) {
      for (int64_t i = 0; i < shape[d]; ++i) next.push_back(base + i * strides[d]);
    }
    positions = next;
  }
  return positions;
}

TEST(ShapeTest, Text) {
  EXPECT_EQ(ToString(Shape{}), "[]");
  EXPECT_EQ(ToString(Shape{7}), "[7]");
  EXPECT_EQ(ToString(Shape{2, 0, -1}), "[2, 0, -1]");
}

TEST(ShapeTest, NumElements) {
  EXPECT_EQ(NumElements(Shape{}), 1);
  EXPECT_EQ(NumElements(Shape{3, 5}), 15);
  EXPECT_EQ(NumElements(Shape{3, 0, 5}), 0);
  // 0 elements, though a prefix overflows.
  EXPECT_EQ(NumElements(Shape{INT64_MAX, INT64_MAX, 0}), 0);
  ExpectError(kInvalid, "Zeros: negative size -2 in shape [0, -2]", [] {
    NumElements(Shape{0, -2}, "Zeros");
  });
  ExpectError(kInvalid, "more elements", [] { NumElements(Shape{INT64_MAX, 2}); });
}

TEST(ShapeTest, ContiguousStrides) {
  EXPECT_EQ(ContiguousStrides(Shape{}), Strides{});
  EXPECT_EQ(ContiguousStrides(Shape{2, 3, 5}), (Strides{15, 5, 1}));
  EXPECT_EQ(ContiguousStrides(Shape{2, 0, 5}), (Strides{5, 5, 1}));
}

TEST(ShapeTest, IsContiguous) {
  EXPECT_TRUE(IsContiguous(Shape{}, Strides{}));
  EXPECT_TRUE(IsContiguous(Shape{2, 3}, Strides{3, 1}));
  EXPECT_FALSE(IsContiguous(Shape{2, 3}, Strides{1, 2}));
  EXPECT_TRUE(IsContiguous(Shape{2, 1, 3}, Strides{3, 77, 1}));
  EXPECT_TRUE(IsContiguous(Shape{1}, Strides{0}));
  EXPECT_FALSE(IsContiguous(Shape{2, 3}, Strides{4, 1}));
  EXPECT_FALSE(IsContiguous(Shape{3}, Strides{0}));
  EXPECT_TRUE(IsContiguous(Shape{0, 3}, Strides{99, 98}));
}

TEST(ShapeTest, NormalizeDim) {
  EXPECT_EQ(NormalizeDim(-1, 3, "Sum"), 2);
  EXPECT_EQ(NormalizeDim(-3, 3, "Sum"), 0);
  EXPECT_EQ(NormalizeDim(2, 3, "Sum"), 2);
  EXPECT_EQ(NormalizeDim(0, 0, "Sum"), 0);
  EXPECT_EQ(NormalizeDim(-1, 0, "Sum"), 0);
  ExpectError(absl::StatusCode::kOutOfRange, "Sum: dimension 3 is not in [-3, 3)",
              [] { NormalizeDim(3, 3, "Sum"); });
  ExpectError(absl::StatusCode::kOutOfRange, "dimension -4", [] { NormalizeDim(-4, 3, "Sum"); });
  ExpectError(absl::StatusCode::kOutOfRange, "dimension 1", [] { NormalizeDim(1, 0, "Sum"); });
}

TEST(ShapeTest, BroadcastShapes) {
  EXPECT_EQ(BroadcastShapes(Shape{3, 1}, Shape{2, 1, 5}, "Add"), (Shape{2, 3, 5}));
  EXPECT_EQ(BroadcastShapes(Shape{}, Shape{4}, "Add"), (Shape{4}));
  EXPECT_EQ(BroadcastShapes(Shape{}, Shape{}, "Add"), (Shape{}));
  EXPECT_EQ(BroadcastShapes(Shape{0}, Shape{1}, "Add"), (Shape{0}));
  EXPECT_EQ(BroadcastShapes(Shape{1}, Shape{3, 0}, "Add"), (Shape{3, 0}));
  ExpectError(kInvalid,
              "Add: shapes [2, 3] and [3, 2] do not broadcast: 3 against 2 in dimension -1", [] {
                BroadcastShapes(Shape{2, 3}, Shape{3, 2}, "Add");
              });
  ExpectError(kInvalid, "0 against 2", [] { BroadcastShapes(Shape{0}, Shape{2}, "Add"); });
}

TEST(ShapeTest, BroadcastStrides) {
  EXPECT_EQ(BroadcastStrides(Shape{3, 1}, Strides{1, 1}, Shape{2, 3, 5}, "Add"),
            (Strides{0, 1, 0}));
  EXPECT_EQ(BroadcastStrides(Shape{}, Strides{}, Shape{2, 3}, "Add"), (Strides{0, 0}));
  EXPECT_EQ(BroadcastStrides(Shape{1}, Strides{6}, Shape{1}, "Add"), (Strides{6}));
  ExpectError(kInvalid, "Expand: shape [2] does not broadcast to [3]",
              [] { BroadcastStrides(Shape{2}, Strides{1}, Shape{3}, "Expand"); });
  ExpectError(kInvalid, "[1, 3]", [] {
    BroadcastStrides(Shape{1, 3}, Strides{3, 1}, Shape{3}, "Expand");
  });
}

TEST(ShapeTest, ViewStridesOfKnownCases) {
  EXPECT_EQ(ViewStrides(Shape{2, 3}, Strides{3, 1}, Shape{6}), (Strides{1}));
  EXPECT_EQ(ViewStrides(Shape{3, 2}, Strides{1, 3}, Shape{6}), std::nullopt);
  EXPECT_EQ(ViewStrides(Shape{3, 4}, Strides{1, 3}, Shape{3, 2, 2}), (Strides{1, 6, 3}));
  EXPECT_EQ(ViewStrides(Shape{}, Strides{}, Shape{1, 1}), (Strides{1, 1}));
  EXPECT_EQ(ViewStrides(Shape{1, 1}, Strides{9, 9}, Shape{}), (Strides{}));
  EXPECT_EQ(ViewStrides(Shape{0, 3}, Strides{3, 1}, Shape{5, 0}), (Strides{1, 1}));
  EXPECT_EQ(ViewStrides(Shape{4}, Strides{0}, Shape{2, 2}), (Strides{0, 0}));
}

// Random strided layouts and all their factorings: a view, when given, shows the elements in
// order; when refused, no strides exist (searched exhaustively among the positions).
TEST(ShapeTest, ViewStridesShowTheSameElements) {
  std::mt19937 random(7);
  const std::vector<int64_t> sizes{1, 2, 3, 4};
  int views = 0, refusals = 0;
  for (int round = 0; round < 3000; ++round) {
    const int rank = 1 + static_cast<int>(random() % 3);
    Shape shape;
    for (int i = 0; i < rank; ++i) shape.push_back(sizes[random() % 4]);
    Strides strides = ContiguousStrides(shape);
    if (random() % 2 == 0) strides[random() % rank] *= static_cast<int64_t>(random() % 3);
    if (rank > 1 && random() % 2 == 0) {
      std::swap(shape[0], shape[rank - 1]);
      std::swap(strides[0], strides[rank - 1]);
    }
    const int64_t count = NumElements(shape);
    Shape target;
    int64_t rest = count;
    for (const int64_t factor : {2, 3, 4, 1}) {
      if (rest % factor == 0 && random() % 2 == 0) {
        target.push_back(factor);
        rest /= factor;
      }
    }
    target.push_back(rest);
    const std::vector<int64_t> expected = Positions(shape, strides);
    const std::optional<Strides> view = ViewStrides(shape, strides, target);
    if (view.has_value()) {
      ++views;
      EXPECT_EQ(Positions(target, *view), expected)
          << ToString(shape) << ToString(strides) << " as " << ToString(target);
      continue;
    }
    ++refusals;
    // The only candidate strides are the distances to each dimension's second element.
    Strides candidate;
    const Strides steps = ContiguousStrides(target);
    for (size_t d = 0; d < target.size(); ++d) {
      candidate.push_back(target[d] > 1 ? expected[steps[d]] - expected[0] : 0);
    }
    EXPECT_NE(Positions(target, candidate), expected)
        << ToString(shape) << ToString(strides) << " as " << ToString(target);
  }
  EXPECT_GT(views, 500);
  EXPECT_GT(refusals, 200);
}

TEST(ShapeTest, InferReshape) {
  EXPECT_EQ(InferReshape(Shape{3, -1}, 15, "Reshape"), (Shape{3, 5}));
  EXPECT_EQ(InferReshape(Shape{-1}, 0, "Reshape"), (Shape{0}));
  EXPECT_EQ(InferReshape(Shape{}, 1, "Reshape"), (Shape{}));
  EXPECT_EQ(InferReshape(Shape{-1, 1}, 1, "Reshape"), (Shape{1, 1}));
  ExpectError(kInvalid, "Reshape: more than one -1 in shape [-1, -1]", [] {
    InferReshape(Shape{-1, -1}, 4, "Reshape");
  });
  ExpectError(kInvalid, "Reshape: shape [4, -1] does not hold 15 elements", [] {
    InferReshape(Shape{4, -1}, 15, "Reshape");
  });
  ExpectError(kInvalid, "does not hold 15", [] { InferReshape(Shape{4, 4}, 15, "Reshape"); });
  ExpectError(kInvalid, "could be any size", [] { InferReshape(Shape{0, -1}, 0, "Reshape"); });
  ExpectError(kInvalid, "negative size -3", [] { InferReshape(Shape{-3, 5}, 15, "Reshape"); });
}

}  // namespace
}  // namespace lockstep
