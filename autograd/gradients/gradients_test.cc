// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Every differentiable row against difference quotients in float64, first and second order, over
// broadcast, strided, empty and zero-dimensional inputs; and that no row is missing here.

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_check.h"
#include "lockstep/autograd/gradient.h"
#include "lockstep/autograd/gradients/gradient_cases.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd {
namespace {

std::set<std::string> DifferentiableRows() {
  std::set<std::string> rows;
  for (int op = 0; op < static_cast<int>(OpId::kBuiltinCount); ++op) {
    const OpInfo& info = GetOpInfo(static_cast<OpId>(op));
    if (info.differentiable) rows.insert(info.name);
  }
  return rows;
}

class RowTest : public testing::TestWithParam<std::string> {};

TEST_P(RowTest, GradientsMatchDifferences) {
  int count = 0;
  for (const GradientCase& test_case : AllGradientCases()) {
    if (test_case.row != GetParam()) continue;
    SCOPED_TRACE(test_case.variant);
    ++count;
    const GradCheckResult result = GradCheck(test_case.function, test_case.inputs(),
                                             {.relative_tolerance = 2e-5,
                                              .absolute_tolerance = 1e-7,
                                              .second_order = test_case.second_order});
    EXPECT_TRUE(result.ok) << result.message;
  }
  EXPECT_GT(count, 0) << "add a case for " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Rows, RowTest, testing::ValuesIn(DifferentiableRows()),
                         [](const auto& info) { return info.param; });

TEST(GradientTableTest, SaysWhatTheOpTableSays) {
  for (int op = 0; op < static_cast<int>(OpId::kBuiltinCount); ++op) {
    const OpInfo& info = GetOpInfo(static_cast<OpId>(op));
    EXPECT_EQ(FindGradient(static_cast<OpId>(op)) != nullptr, info.differentiable) << info.name;
  }
}

TEST(GradientTableTest, CasesNameRows) {
  const std::set<std::string> rows = DifferentiableRows();
  for (const GradientCase& test_case : AllGradientCases())
    EXPECT_TRUE(rows.count(test_case.row)) << test_case.row;
}

TEST(TiesTest, EqualElementsShareTheGradient) {
  const Tensor x = SetRequiresGrad(FromVector<double>({3, 1, 3, 2, 3, 0}, {2, 3}), true);
  Backward(Sum(Mul(Max(x, {1}), FromVector<double>({6, 5}, {2}))));
  EXPECT_EQ(Grad(x).ToVector<double>(), (std::vector<double>{3, 0, 3, 0, 5, 0}));

  const Tensor a = SetRequiresGrad(FromVector<double>({1, 2, 3}, {3}), true);
  const Tensor b = SetRequiresGrad(FromVector<double>({1, 5, 0}, {3}), true);
  Backward(Sum(Maximum(a, b)));
  EXPECT_EQ(Grad(a).ToVector<double>(), (std::vector<double>{0.5, 0, 1}));
  EXPECT_EQ(Grad(b).ToVector<double>(), (std::vector<double>{0.5, 1, 0}));
}

TEST(SavesTest, OnlyWhatTheWantedGradientsNeed) {
  const Tensor x = Clone(Detach(GradientCaseData({16, 4}, 1)));
  const Tensor w = GradientCaseData({16, 4}, 2);
  const int64_t before = SavedBytes();
  {
    const Tensor y = Mul(x, w);  // the gradient of w needs x; that of x is not wanted
    EXPECT_EQ(SavedBytes() - before, x.bytes());
  }
  EXPECT_EQ(SavedBytes(), before);
  const Tensor frozen = Clone(Detach(w));
  {
    const Tensor y = Mul(SetRequiresGrad(Clone(x), true), frozen);
    EXPECT_EQ(SavedBytes() - before, frozen.bytes());
  }
  const Tensor y = Add(x, w);  // nothing
  EXPECT_EQ(SavedBytes(), before);
}

TEST(DTypeTest, SixteenBitGradientsHaveTheInputsDType) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    const Tensor x = SetRequiresGrad(To(Detach(GradientCaseData({4, 3}, 1)), dtype), true);
    const Tensor w = SetRequiresGrad(To(Detach(GradientCaseData({5, 3}, 2)), dtype), true);
    const Tensor b = SetRequiresGrad(To(Detach(GradientCaseData({5}, 3)), dtype), true);
    const Tensor y = LayerNorm(Gelu(Linear(x, w, b)), b, b);
    Backward(CrossEntropy(Softmax(y, 1), FromVector<int64_t>({0, 4, 2, 1}, {4})));
    for (const Tensor& leaf : {x, w, b}) {
      ASSERT_TRUE(Grad(leaf).defined());
      EXPECT_EQ(Grad(leaf).dtype(), dtype);
      EXPECT_TRUE(All(IsFinite(Grad(leaf))).Item<bool>());
    }
  }
}

// Each operand of a mixed sum gets its gradient in its own dtype and shape.
TEST(DTypeTest, MixedSumsGiveEachOperandItsDType) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Tensor x = SetRequiresGrad(Detach(GradientCaseData({4, 3}, 1)), true);
    const Tensor y = SetRequiresGrad(To(Detach(GradientCaseData({3}, 2)), dtype), true);
    const Tensor weight = FromVector<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {4, 3});
    Backward(Sum(Mul(Add(To(x, DType::kFloat32), y, 0.5), weight)));
    EXPECT_EQ(Grad(y).dtype(), dtype);
    EXPECT_EQ(Grad(y).shape(), (Shape{3}));
    const Tensor expected = FromVector<float>({11, 13, 15}, {3});
    EXPECT_TRUE(All(Equal(To(Grad(y), DType::kFloat32), expected)).Item<bool>());
    EXPECT_EQ(Grad(x).dtype(), x.dtype());
    EXPECT_TRUE(All(Equal(Grad(x), To(weight, x.dtype()))).Item<bool>());
  }
}

}  // namespace
}  // namespace lockstep::autograd
