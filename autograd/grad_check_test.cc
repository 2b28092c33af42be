// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/grad_check.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/custom_function.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd {
namespace {

Tensor Leaf() {
  return SetRequiresGrad(FromVector<double>({0.5, -1.5, 2.5, 1, 2, 3}, {2, 3}), true);
}

// x^2 with a gradient that is wrong in one element, or only in its own gradient.
class WrongSquare : public CustomFunction {
 public:
  WrongSquare(bool first_order, bool second_order)
      : first_order_(first_order), second_order_(second_order) {}
  std::string Name() const override { return "WrongSquare"; }
  std::vector<Tensor> Forward(FunctionContext& context, TensorSpan inputs) override {
    context.SaveForBackward({inputs[0]});
    return {Mul(inputs[0], inputs[0])};
  }
  std::vector<Tensor> Backward(FunctionContext& context, TensorSpan gradients) override {
    Tensor x = context.Saved()[0];
    if (second_order_) x = Detach(x);
    Tensor dx = Mul(gradients[0], Mul(x, 2.0));
    if (first_order_) {
      dx = Add(dx, FromVector<double>({0, 0, 0, 0, 1e-3, 0}, {2, 3}));
    }
    return {dx};
  }

 private:
  bool first_order_, second_order_;
};

GradCheckResult CheckSquare(bool wrong_first, bool wrong_second, bool second_order) {
  return GradCheck(
      [=](TensorSpan in) {
        return Apply(std::make_shared<WrongSquare>(wrong_first, wrong_second), in);
      },
      {Leaf()}, {.second_order = second_order});
}

TEST(GradCheckTest, AcceptsARightGradient) {
  const GradCheckResult result = CheckSquare(false, false, true);
  EXPECT_TRUE(result.ok) << result.message;
  EXPECT_EQ(result.message, "");
}

TEST(GradCheckTest, FindsOneWrongElement) {
  const GradCheckResult result = CheckSquare(true, false, false);
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.message.find("input 0"), std::string::npos) << result.message;
  EXPECT_NE(result.message.find("element 4"), std::string::npos) << result.message;
}

TEST(GradCheckTest, FindsAWrongSecondOrder) {
  EXPECT_TRUE(CheckSquare(false, true, false).ok);
  const GradCheckResult result = CheckSquare(false, true, true);
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.message.find("second order"), std::string::npos) << result.message;
}

TEST(GradCheckTest, FindsAMissingGradient) {
  const Tensor x = Leaf();
  EXPECT_FALSE(GradCheck([](TensorSpan in) { return std::vector<Tensor>{Detach(in[0])}; }, {x}).ok);
  const GradCheckResult half =
      GradCheck([](TensorSpan in) { return std::vector<Tensor>{Mul(in[0], Detach(in[0]))}; }, {x});
  EXPECT_FALSE(half.ok);
}

TEST(GradCheckTest, RestoresTheInputs) {
  const Tensor x = Leaf();
  const std::vector<double> before = x.ToVector<double>();
  GradCheck([](TensorSpan in) { return std::vector<Tensor>{Exp(in[0])}; }, {x});
  EXPECT_EQ(x.ToVector<double>(), before);
  EXPECT_FALSE(Grad(x).defined());
}

TEST(GradCheckTest, WantsAnInputToCheck) {
  const Tensor constant = FromVector<double>({1}, {1});
  const Tensor single = SetRequiresGrad(FromVector<float>({1}, {1}), true);
  const auto square = [](TensorSpan in) { return std::vector<Tensor>{Mul(in[0], in[0])}; };
  EXPECT_THROW(GradCheck(square, {constant}), Error);
  EXPECT_THROW(GradCheck(square, {single}), Error);
  EXPECT_THROW(GradCheck(square, {}), Error);
}

}  // namespace
}  // namespace lockstep::autograd
