// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/amp/non_finite/first_non_finite.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::amp {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// 3 x 5 distinct numbers with `bad` at [1, 3] and an infinity at [0, 4].
Tensor Matrix(double bad, DType dtype) {
  std::vector<double> values;
  for (int i = 0; i < 15; ++i) values.push_back(0.5 * i - 2);
  values[8] = bad;
  values[4] = kInf;
  return To(FromVector<double>(values, {3, 5}), dtype);
}

TEST(FirstNonFiniteTest, FindsThePlaceInEveryDType) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    const Tensor x = Matrix(kNan, dtype);
    EXPECT_EQ(FinitenessOf(x), Finiteness::kNan);
    auto first = FirstNonFinite(x);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->index, (Shape{0, 4}));
    EXPECT_EQ(first->value, kInf);
    first = FirstNonFinite(x, Finiteness::kNan);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->index, (Shape{1, 3}));
    EXPECT_TRUE(std::isnan(first->value));
  }
}

TEST(FirstNonFiniteTest, CountsAlongTheShapeOfAView) {
  const Tensor x = Transpose(Matrix(-kInf, DType::kFloat32), 0, 1);
  EXPECT_EQ(FinitenessOf(x), Finiteness::kInfinite);
  EXPECT_FALSE(FirstNonFinite(x, Finiteness::kNan).has_value());
  const auto first = FirstNonFinite(x);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->index, (Shape{3, 1}));
  EXPECT_EQ(Describe(x, *first), "float32[5, 3] on cpu:0 has -inf at [3, 1]");
}

TEST(FirstNonFiniteTest, NothingToLookAtIsFinite) {
  EXPECT_EQ(FinitenessOf(Tensor()), Finiteness::kFinite);
  EXPECT_EQ(FinitenessOf(Zeros({0, 3})), Finiteness::kFinite);
  EXPECT_EQ(FinitenessOf(Full({2}, 7, {.dtype = DType::kInt64})), Finiteness::kFinite);
  EXPECT_EQ(FinitenessOf(Full({2}, kNan, {.device = kMeta})), Finiteness::kFinite);
  EXPECT_FALSE(FirstNonFinite(Ones({3})).has_value());
  EXPECT_EQ(FirstNonFinite(Full({}, kNan))->index, Shape());
}

TEST(FirstNonFiniteTest, LeavesNoTraceInTheGraph) {
  const Tensor x = autograd::SetRequiresGrad(Full({3}, kNan), true);
  const int64_t version = x.version();
  EXPECT_TRUE(FirstNonFinite(x).has_value());
  EXPECT_EQ(x.version(), version);
  EXPECT_TRUE(autograd::RequiresGrad(x * 2.0)) << "layers are on again";
}

}  // namespace
}  // namespace lockstep::amp
