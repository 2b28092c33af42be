// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/reduction.h"

#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/ops/testing.h"

namespace lockstep {
namespace {

using testing_util::Describe;
using testing_util::ExpectError;
using testing_util::ExpectInvalid;
using testing_util::Meta;
using testing_util::Recorder;

using Reduction = std::function<Tensor(const Tensor&, const ShapeArg&, bool)>;

const std::vector<Reduction>& AllReductions() {
  static const auto* const kAll = new std::vector<Reduction>{Sum, Mean, Max, Min, All, Any};
  return *kAll;
}

TEST(ReductionTest, DimensionsAreNormalised) {
  Recorder recorder;
  for (const Reduction& op : AllReductions()) {
    recorder.Clear();
    EXPECT_EQ(op(Meta({2, 3, 5}), {-1, 0}, false).shape(), (Shape{3}));
    EXPECT_EQ(op(Meta({2, 3, 5}), {}, true).shape(), (Shape{1, 1, 1}));
    EXPECT_EQ(op(Meta({2, 3, 5}), Shape(), false).shape(), (Shape{}));
    EXPECT_EQ(op(Meta({}), {}, false).shape(), (Shape{}));
    EXPECT_EQ(op(Meta({}), {-1}, true).shape(), (Shape{}));
    EXPECT_EQ(recorder.calls()[0].attributes, "{dims=[0, 2], keepdim=false}");
    EXPECT_EQ(recorder.calls()[1].attributes, "{dims=[0, 1, 2], keepdim=true}");
    EXPECT_EQ(recorder.calls()[4].attributes, "{dims=[], keepdim=true}");
    ExpectInvalid("dimension 2 is given twice in dims [2, -1]", [&] {
      op(Meta({2, 3, 5}), {2, -1}, false);
    });
    ExpectError(absl::StatusCode::kOutOfRange, "dimension 3 is not in [-3, 3)", [&] {
      op(Meta({2, 3, 5}), {3}, false);
    });
    ExpectInvalid("x is undefined; pass a tensor", [&] { op(Tensor(), {}, false); });
  }
}

TEST(ReductionTest, DTypes) {
  EXPECT_EQ(Describe(Sum(Meta({3}, DType::kBool))), "int64[]");
  EXPECT_EQ(Describe(Sum(Meta({3}, DType::kBFloat16))), "bfloat16[]");
  EXPECT_EQ(Describe(Max(Meta({3}, DType::kUInt8))), "uint8[]");
  EXPECT_EQ(Describe(Any(Meta({3}, DType::kFloat64), {0}, true)), "bool[1]");
  ExpectInvalid("Mean: x has dtype int64; it must have a floating-point dtype",
                [] { Mean(Meta({3}, DType::kInt64)); });
}

TEST(ReductionTest, OverNothing) {
  EXPECT_EQ(Describe(Sum(Meta({0, 3}), {0})), "float32[3]");
  EXPECT_EQ(Describe(Mean(Meta({0}))), "float32[]");
  ExpectInvalid("Max: dimension 0 of x of shape [0, 3] has no elements", [] { Max(Meta({0, 3})); });
  EXPECT_EQ(Describe(Min(Meta({0, 3}), {1})), "float32[0]");
}

TEST(ReductionTest, Arguments) {
  for (const auto& op : {ArgMax, ArgMin}) {
    EXPECT_EQ(Describe(op(Meta({2, 3}), -1, false)), "int64[2]");
    EXPECT_EQ(Describe(op(Meta({2, 3}), 0, true)), "int64[1, 3]");
    EXPECT_EQ(Describe(op(Meta({}), 0, false)), "int64[]");
    ExpectError(absl::StatusCode::kOutOfRange, "dimension 2", [&] { op(Meta({2, 3}), 2, false); });
    ExpectInvalid("no elements to choose from", [&] { op(Meta({2, 0}), 1, false); });
    ExpectInvalid("x is undefined", [&] { op(Tensor(), 0, false); });
  }
}

TEST(ReductionTest, SumTo) {
  const Tensor x = Meta({2, 3, 5});
  EXPECT_TRUE(SumTo(x, Shape{2, 3, 5}).IsSame(x));
  EXPECT_EQ(Describe(SumTo(x, Shape{})), "float32[]");
  EXPECT_EQ(Describe(SumTo(x, Shape{3, 1})), "float32[3, 1]");
  EXPECT_EQ(Describe(SumTo(x, Shape{1, 3, 5})), "float32[1, 3, 5]");
  EXPECT_EQ(Describe(SumTo(x, Shape{5})), "float32[5]");
  EXPECT_EQ(Describe(SumTo(Meta({0, 3}), Shape{1, 3})), "float32[1, 3]");
  Recorder recorder;
  SumTo(x, Shape{3, 1});
  EXPECT_EQ(recorder.Ops(), "Sum View");
  EXPECT_EQ(recorder.calls()[0].attributes, "{dims=[0, 2], keepdim=true}");
  recorder.Clear();
  SumTo(x, Shape{2, 1, 5});
  EXPECT_EQ(recorder.Ops(), "Sum");
  ExpectInvalid("SumTo: shape [2] does not broadcast to x of shape [2, 3, 5]",
                [&] { SumTo(x, Shape{2}); });
  ExpectInvalid("does not broadcast", [&] { SumTo(x, Shape{1, 2, 3, 5}); });
  ExpectInvalid("SumTo: x is undefined", [] { SumTo(Tensor(), Shape{}); });
}

}  // namespace
}  // namespace lockstep
