// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/layer_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/losses.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::nn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(Linear, MultipliesAndHasPyTorchsInitialValues) {
  ManualSeed(3);
  Linear layer(25, 400);
  EXPECT_EQ(layer.weight.shape(), (Shape{400, 25}));
  EXPECT_EQ(layer.bias.shape(), (Shape{400}));
  for (const Tensor& t : {layer.weight, layer.bias}) {
    EXPECT_LE(Max(Abs(t)).Item<float>(), 0.2f);
    EXPECT_GT(Max(Abs(t)).Item<float>(), 0.19f);
    EXPECT_NEAR(Mean(t).Item<float>(), 0, 0.02);
  }
  Linear small(2, 3);
  small.LoadStateDict({{"weight", FromVector<float>({1, 2, 3, 4, 5, 6}, {3, 2})},
                       {"bias", FromVector<float>({10, 20, 30}, {3})}});
  const Tensor y = small(FromVector<float>({1, 1, 0, 2}, {2, 1, 2}));
  EXPECT_EQ(y.shape(), (Shape{2, 1, 3}));
  EXPECT_THAT(y.ToVector<float>(), ElementsAre(13, 27, 41, 14, 28, 42));
}

TEST(Linear, SameSeedSameValues) {
  ManualSeed(3);
  const Linear a(5, 3);
  ManualSeed(3);
  Linear b(5, 3);
  EXPECT_EQ(a.weight.ToVector<float>(), b.weight.ToVector<float>());
  EXPECT_EQ(a.bias.ToVector<float>(), b.bias.ToVector<float>());
  b.ResetParameters();
  EXPECT_NE(a.weight.ToVector<float>(), b.weight.ToVector<float>());
}

TEST(Linear, WithoutBiasAndWithoutInputs) {
  Linear layer(3, 2, {.bias = false});
  EXPECT_THAT(layer.StateDict().Names(), ElementsAre("weight"));
  EXPECT_EQ(layer(Zeros({0, 3})).shape(), (Shape{0, 2}));
  Linear constant(0, 2);
  EXPECT_THAT(constant(Zeros({1, 0})).ToVector<float>(), Each(0));
}

TEST(Linear, SharesAWeight) {
  ManualSeed(3);
  Embedding table(7, 3);
  const std::vector<float> values = table.weight.ToVector<float>();
  Linear head(3, 7, {.bias = false, .weight = table.weight});
  EXPECT_TRUE(head.weight.IsSame(table.weight));
  EXPECT_EQ(head.weight.ToVector<float>(), values);
  table.SetRequiresGrad(false);
  Linear frozen(3, 7, {.bias = false, .weight = table.weight});
  EXPECT_FALSE(autograd::RequiresGrad(frozen.weight));
  EXPECT_THROW(Linear(7, 3, {.weight = table.weight}), Error);
  EXPECT_THROW(Linear(-1, 3), Error);
}

TEST(Embedding, LooksUpRowsAndSumsGradients) {
  Embedding table(3, 2);
  table.LoadStateDict({{"weight", FromVector<float>({1, 2, 3, 4, 5, 6}, {3, 2})}});
  const Tensor y = table(FromVector<int64_t>({2, 0, 2}, {3}));
  EXPECT_THAT(y.ToVector<float>(), ElementsAre(5, 6, 1, 2, 5, 6));
  autograd::Backward(Sum(y * FromVector<float>({1, 2, 3, 4, 5, 6}, {3, 2})));
  EXPECT_THAT(autograd::Grad(table.weight).ToVector<float>(), ElementsAre(3, 4, 0, 0, 6, 8));
  EXPECT_THROW(table(FromVector<int64_t>({3}, {1})), Error);
  EXPECT_THROW(Embedding(3, -2), Error);
  Embedding large(100, 100);
  EXPECT_NEAR(Mean(large.weight * large.weight).Item<float>(), 1, 0.05);
}

TEST(LayerNorm, NormalisesTheLastDimensions) {
  LayerNorm norm({2, 2});
  norm.LoadStateDict({{"weight", FromVector<float>({1, 2, 3, 4}, {2, 2})},
                      {"bias", FromVector<float>({0, 0, 0, 1}, {2, 2})}});
  const Tensor y = norm(FromVector<float>({1, 3, 1, 3}, {1, 2, 2}));
  const std::vector<float> v = y.ToVector<float>();
  const float expected[] = {-1, 2, -3, 5};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(v[static_cast<size_t>(i)], expected[i], 1e-4);
  EXPECT_THROW(norm(Zeros({4})), Error);
  EXPECT_THROW(norm(Zeros({2, 3})), Error);
  EXPECT_THROW(LayerNorm(Shape{}), Error);
  EXPECT_THROW(LayerNorm({3}, {.epsilon = -1}), Error);
}

TEST(LayerNorm, WithoutParameters) {
  LayerNorm plain({3}, {.affine = false});
  EXPECT_TRUE(plain.StateDict().empty());
  EXPECT_NEAR(Sum(plain(FromVector<float>({1, 2, 4}, {3}))).Item<float>(), 0, 1e-5);
  LayerNorm scale({3}, {.bias = false});
  EXPECT_THAT(scale.StateDict().Names(), ElementsAre("weight"));
}

TEST(Dropout, ActsInTrainingOnly) {
  ManualSeed(4);
  Dropout dropout(0.25);
  const Tensor x = Ones({4000});
  const Tensor y = dropout(x);
  int kept = 0;
  for (const float v : y.ToVector<float>()) {
    if (v == 0) continue;
    EXPECT_FLOAT_EQ(v, 1 / 0.75f);
    ++kept;
  }
  EXPECT_NEAR(kept, 3000, 120);
  EXPECT_NE(dropout(x).ToVector<float>(), y.ToVector<float>());
  ManualSeed(4);
  EXPECT_EQ(dropout(x).ToVector<float>(), y.ToVector<float>());
  dropout.Eval();
  EXPECT_TRUE(dropout(x).IsSame(x));
  EXPECT_THROW(Dropout(1.5), Error);
  EXPECT_THROW(Dropout(std::nan("")), Error);
}

TEST(Dropout, ProbabilityZeroDrawsNothing) {
  ManualSeed(4);
  Dropout dropout(0);
  const Tensor x = Ones({5});
  EXPECT_TRUE(dropout(x).IsSame(x));
  EXPECT_EQ(ThreadGenerators().dropout.key.offset, 0u);
}

TEST(Activations, AreTheFunctions) {
  const Tensor x = FromVector<float>({-2, -0.5f, 0, 3}, {4});
  EXPECT_EQ(Relu()(x).ToVector<float>(), lockstep::Relu(x).ToVector<float>());
  EXPECT_EQ(Tanh()(x).ToVector<float>(), lockstep::Tanh(x).ToVector<float>());
  EXPECT_EQ(Sigmoid()(x).ToVector<float>(), lockstep::Sigmoid(x).ToVector<float>());
  // x * Phi(x) and its approximation, at 3 and -2.
  EXPECT_NEAR(Gelu()(x).Item<float>({3}), 2.9959502, 1e-5);
  EXPECT_NEAR(Gelu()(x).Item<float>({0}), -0.0455003, 1e-5);
  EXPECT_NEAR(Gelu(GeluKind::kTanh)(x).Item<float>({0}), -0.0454023, 1e-5);
}

TEST(Losses, HaveTheirOptions) {
  const Tensor logits = FromVector<float>({0, 0, 0, 0, std::log(2.0f), 0}, {2, 3});
  const Tensor target = FromVector<int64_t>({2, 1}, {2});
  const double expected = (std::log(3.0) + std::log(4.0) - std::log(2.0)) / 2;
  EXPECT_NEAR(CrossEntropyLoss()(logits, target).Item<float>(), expected, 1e-6);
  CrossEntropyLoss sum({.reduction = Reduction::kSum, .ignore_index = 2});
  EXPECT_NEAR(sum(logits, target).Item<float>(), std::log(2.0), 1e-6);
  EXPECT_THROW(CrossEntropyLoss({.label_smoothing = 2}), Error);
  const Tensor x = FromVector<float>({1, 2, 3}, {3});
  EXPECT_FLOAT_EQ(MseLoss()(x, Zeros({3})).Item<float>(), 14.0f / 3);
  EXPECT_FLOAT_EQ(MseLoss(Reduction::kSum)(x, Zeros({3})).Item<float>(), 14);
}

}  // namespace
}  // namespace lockstep::nn
