// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::nn {
namespace {

using ::testing::ElementsAre;

// The same by matrix products, one head after the other.
Tensor Reference(CausalSelfAttention& module, const Tensor& x, int64_t heads) {
  const int64_t width = x.size(2), length = x.size(1), head = width / heads;
  const Tensor qkv = (*module.c_attn())(x);
  std::vector<Tensor> outputs;
  for (int64_t h = 0; h < heads; ++h) {
    const Tensor q = Slice(qkv, 2, h * head, (h + 1) * head);
    const Tensor k = Slice(qkv, 2, width + h * head, width + (h + 1) * head);
    const Tensor v = Slice(qkv, 2, 2 * width + h * head, 2 * width + (h + 1) * head);
    const Tensor scores =
        MatMul(q, k, {.transpose_b = true}) * Scalar(1 / std::sqrt(static_cast<double>(head)));
    const Tensor visible = Greater(Tril(Ones({length, length})), Scalar(0));
    outputs.push_back(MatMul(Softmax(Where(visible, scores, Scalar(-INFINITY)), -1), v));
  }
  return (*module.c_proj())(Concat(outputs, 2));
}

double LargestDifference(const Tensor& a, const Tensor& b) {
  return Max(Abs(a - b)).Item<double>();
}

TEST(CausalSelfAttention, EqualsMatrixProducts) {
  ManualSeed(6);
  CausalSelfAttention module({.width = 15, .heads = 3});
  module.To(DType::kFloat64);
  const Tensor x = autograd::SetRequiresGrad(
      RandomNormal({2, 7, 15}, 0, 1, {nullptr, {DType::kFloat64, {}}}), true);
  const Tensor weights = RandomNormal({2, 7, 15}, 0, 1, {nullptr, {DType::kFloat64, {}}});
  const Tensor y = module(x);
  const Tensor expected = Reference(module, x, 3);
  EXPECT_LT(LargestDifference(y, expected), 1e-12);

  autograd::Backward(Sum(y * weights));
  std::vector<Tensor> gradients = {autograd::Grad(x)};
  for (const Tensor& p : module.Parameters()) gradients.push_back(autograd::Grad(p));
  module.ZeroGrad();
  autograd::SetGrad(x, {});
  autograd::Backward(Sum(expected * weights));
  EXPECT_LT(LargestDifference(gradients[0], autograd::Grad(x)), 1e-12);
  for (size_t i = 0; i < module.Parameters().size(); ++i) {
    EXPECT_LT(LargestDifference(gradients[i + 1], autograd::Grad(module.Parameters()[i])), 1e-12);
  }
}

TEST(CausalSelfAttention, NeverLooksAhead) {
  ManualSeed(6);
  CausalSelfAttention module({.width = 6, .heads = 2, .bias = false});
  const Tensor x = RandomNormal({1, 5, 6});
  const std::vector<float> y = module(x).ToVector<float>();
  Tensor changed = Clone(x);
  FillInPlace(Slice(changed, 1, 3), 9);
  const std::vector<float> z = module(changed).ToVector<float>();
  for (size_t i = 0; i < 3 * 6; ++i) EXPECT_EQ(y[i], z[i]) << i;
  EXPECT_NE(y[3 * 6], z[3 * 6]);
}

TEST(CausalSelfAttention, NamesAreGpt2s) {
  CausalSelfAttention module({.width = 6, .heads = 2});
  EXPECT_THAT(module.StateDict().Names(),
              ElementsAre("c_attn.weight", "c_attn.bias", "c_proj.weight", "c_proj.bias"));
  EXPECT_EQ(module.c_attn()->weight.shape(), (Shape{18, 6}));
}

TEST(CausalSelfAttention, DropoutActsInTrainingOnly) {
  ManualSeed(6);
  CausalSelfAttention module(
      {.width = 6, .heads = 2, .attention_dropout = 0.5, .residual_dropout = 0.5});
  const Tensor x = RandomNormal({2, 5, 6});
  EXPECT_NE(module(x).ToVector<float>(), module(x).ToVector<float>());
  module.Eval();
  EXPECT_EQ(module(x).ToVector<float>(), module(x).ToVector<float>());
}

TEST(CausalSelfAttention, RefusesBadSizes) {
  EXPECT_THROW(CausalSelfAttention({.width = 6, .heads = 4}), Error);
  EXPECT_THROW(CausalSelfAttention({.width = 0, .heads = 1}), Error);
  EXPECT_THROW(CausalSelfAttention({.width = 6, .heads = 0}), Error);
  EXPECT_THROW(CausalSelfAttention({.width = 6, .heads = 2, .attention_dropout = -1}), Error);
  EXPECT_THROW(CausalSelfAttention({.width = 6, .heads = 2, .residual_dropout = 2}), Error);
  CausalSelfAttention module({.width = 6, .heads = 2});
  EXPECT_THROW(module(Zeros({5, 6})), Error);
  EXPECT_THROW(module(Zeros({1, 5, 4})), Error);
  EXPECT_EQ(module(Zeros({0, 5, 6})).shape(), (Shape{0, 5, 6}));
  EXPECT_EQ(module(Zeros({2, 1, 6})).shape(), (Shape{2, 1, 6}));
}

}  // namespace
}  // namespace lockstep::nn
