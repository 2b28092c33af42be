// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/models/mlp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/backward.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::models {
namespace {

using ::testing::ElementsAre;

TEST(Mlp, HasLayersAndShapes) {
  Mlp model({.sizes = {5, 7, 3, 2}, .activation = MlpActivation::kTanh});
  EXPECT_THAT(model.StateDict().Names(),
              ElementsAre("layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias",
                          "layers.4.weight", "layers.4.bias"));
  EXPECT_EQ(model(Zeros({4, 1, 5})).shape(), (Shape{4, 1, 2}));
  Mlp with_dropout({.sizes = {5, 7, 3}, .dropout = 0.5});
  EXPECT_THAT(with_dropout.StateDict().Names(),
              ElementsAre("layers.0.weight", "layers.0.bias", "layers.3.weight", "layers.3.bias"));
  Mlp linear({.sizes = {5, 2}});
  EXPECT_EQ(linear.ParameterCount(), 12);
}

TEST(Mlp, ActivationsDiffer) {
  Tensor last;
  for (const MlpActivation activation : {MlpActivation::kRelu, MlpActivation::kGelu,
                                         MlpActivation::kTanh, MlpActivation::kSigmoid}) {
    ManualSeed(2);
    Mlp model({.sizes = {3, 8, 1}, .activation = activation});
    const Tensor y = model(Ones({1, 3}));
    if (last.defined()) {
      EXPECT_NE(y.Item<float>(), last.Item<float>());
    }
    last = y;
  }
}

TEST(Mlp, Learns) {
  ManualSeed(2);
  Mlp model({.sizes = {2, 16, 2}, .activation = MlpActivation::kTanh});
  const Tensor x = FromVector<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
  const Tensor target = FromVector<int64_t>({0, 1, 1, 0}, {4});
  optim::Sgd optimizer(model.NamedParameters(), {.lr = 0.5, .momentum = 0.9});
  for (int step = 0; step < 200; ++step) {
    optimizer.ZeroGrad();
    autograd::Backward(CrossEntropy(model(x), target));
    optimizer.Step();
  }
  EXPECT_THAT(ArgMax(model(x), 1).ToVector<int64_t>(), ElementsAre(0, 1, 1, 0));
}

TEST(Mlp, RefusesBadConfigs) {
  EXPECT_THROW(Mlp({.sizes = {}}), Error);
  EXPECT_THROW(Mlp({.sizes = {3}}), Error);
  EXPECT_THROW(Mlp({.sizes = {3, 0, 2}}), Error);
  EXPECT_THROW(Mlp({.sizes = {3, 2}, .dropout = 2}), Error);
  EXPECT_THROW(Mlp({.sizes = {3, 4, 2}, .activation = static_cast<MlpActivation>(9)}), Error);
}

}  // namespace
}  // namespace lockstep::models
