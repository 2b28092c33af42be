// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of autograd.md.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/custom_function.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

class Scale : public autograd::CustomFunction {
 public:
  explicit Scale(double factor) : factor_(factor) {}
  std::string Name() const override { return "Scale"; }
  std::vector<Tensor> Forward(autograd::FunctionContext&, TensorSpan inputs) override {
    return {inputs[0] * factor_};
  }
  std::vector<Tensor> Backward(autograd::FunctionContext&, TensorSpan gradients) override {
    return {gradients[0] * factor_};
  }

 private:
  double factor_;
};

TEST(AutogradExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/autograd.md", "docs/autograd_example_test.cc");
}

TEST(AutogradExample, Gradients) {
  Tensor w = autograd::SetRequiresGrad(FromVector<float>({1, 2, 3}, {3}), true);
  Tensor loss = Sum(w * w);
  autograd::Backward(loss);
  Tensor gradient = autograd::Grad(w);  // 2 w
  EXPECT_EQ(gradient.ToVector<float>(), (std::vector<float>{2, 4, 6}));

  {
    autograd::NoGradScope no_grad;
    AddInPlace(w, gradient, -0.1);
  }
  autograd::SetGrad(w, Tensor());
  EXPECT_FALSE(autograd::Grad(w).defined());
}

TEST(AutogradExample, HigherOrder) {
  Tensor x = autograd::SetRequiresGrad(FromVector<double>({2}, {}), true);
  Tensor y = x * x * x;
  Tensor first = autograd::Gradients({y}, {x}, {.create_graph = true})[0];  // 3 x^2
  Tensor second = autograd::Gradients({first}, {x})[0];                     // 6 x
  EXPECT_EQ(first.Item<double>(), 12);
  EXPECT_EQ(second.Item<double>(), 12);
}

TEST(AutogradExample, Hooks) {
  Tensor w = autograd::SetRequiresGrad(FromVector<float>({3}, {1}), true);
  Tensor h = w * 2;
  autograd::HookHandle handle =
      autograd::RegisterHook(h, [](const Tensor& gradient) { return gradient * 10; });
  autograd::RegisterPostAccumulateGradHook(
      w, [](const Tensor& leaf) { DivInPlace(autograd::Grad(leaf), 4); });
  autograd::Backward(Sum(h));
  EXPECT_EQ(autograd::Grad(w).Item<float>(), 5);
  handle.Remove();
}

TEST(AutogradExample, CustomFunction) {
  Tensor x = autograd::SetRequiresGrad(FromVector<float>({3}, {1}), true);
  Tensor y = autograd::Apply(std::make_shared<Scale>(2.5), {x})[0];
  autograd::Backward(Sum(y));
  EXPECT_EQ(autograd::Grad(x).Item<float>(), 2.5f);
}

}  // namespace
}  // namespace lockstep
