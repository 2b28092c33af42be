// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/schedules/reduce_on_plateau.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::optim {
namespace {

using ::testing::HasSubstr;

Tensor Leaf() { return autograd::SetRequiresGrad(FromVector<float>({1, 2}, {2}), true); }

TEST(ReduceLrOnPlateau, WaitsForItsPatience) {
  Sgd optimizer({{"w", Leaf()}}, {.lr = 8});
  ReduceLrOnPlateau schedule(&optimizer, {.factor = 0.5, .patience = 2});
  for (const double loss : {1.0, 2.0, 2.0}) schedule.Step(loss);
  EXPECT_EQ(optimizer.LearningRate(), 8);
  schedule.Step(NAN);  // The third without improvement.
  EXPECT_EQ(optimizer.LearningRate(), 4);
  schedule.Step(0.5);
  optimizer.options().lr = 16;
  EXPECT_EQ(optimizer.LearningRate(), 8);
  EXPECT_EQ(schedule.step(), 5);
}

TEST(ReduceLrOnPlateau, FloorsByGroup) {
  Sgd optimizer(
      {{NamedTensors{{"a", Leaf()}}, {.lr = 1}}, {NamedTensors{{"b", Leaf()}}, {.lr = 1}}});
  ReduceLrOnPlateau schedule(&optimizer, {.factor = 0.1, .patience = 0, .min_lr = {0.5, 0}});
  for (int step = 0; step < 3; ++step) schedule.Step(1);
  EXPECT_EQ(optimizer.LearningRate(0), 0.5);
  EXPECT_DOUBLE_EQ(optimizer.LearningRate(1), 0.01);
  // A reduction by no more than epsilon is left out.
  for (int step = 0; step < 50; ++step) schedule.Step(1);
  EXPECT_GT(optimizer.LearningRate(1), 1e-10);
  EXPECT_LT(optimizer.LearningRate(1), 1e-7);
}

TEST(ReduceLrOnPlateau, ResumesWhereItWas) {
  const ReduceLrOnPlateauOptions options{
      .mode = PlateauMode::kMax, .factor = 0.5, .patience = 1, .cooldown = 2};
  Sgd a({{"w", Leaf()}}, {.lr = 1}), b({{"w", Leaf()}}, {.lr = 1});
  ReduceLrOnPlateau whole(&a, options), resumed(&b, options);
  resumed.LoadState(whole.SaveState());  // Nothing seen yet: the best is infinite.
  int reductions = 0;
  for (int step = 0; step < 40; ++step) {
    if (step % 3 == 0) {
      ReduceLrOnPlateau other(&b, options);
      other.LoadState(resumed.SaveState());
      resumed.LoadState(other.SaveState());
    }
    const double metric = std::sin(step) + 0.01 * step;
    const double before = a.LearningRate();
    whole.Step(metric);
    resumed.Step(metric);
    reductions += a.LearningRate() != before ? 1 : 0;
    EXPECT_EQ(a.LearningRate(), b.LearningRate()) << step;
  }
  EXPECT_GT(reductions, 2);
}

TEST(ReduceLrOnPlateau, ListsWhatDoesNotFitAndChangesNothing) {
  Sgd optimizer({{"w", Leaf()}}, {.lr = 1});
  ReduceLrOnPlateau schedule(&optimizer);
  schedule.Step(1);
  OptimizerState bad = schedule.SaveState();
  bad.numbers.erase("cooldown");
  bad.numbers["reductions"] = -1;
  bad.numbers["other"] = 1;
  bad.tensors = {{"best", Zeros({2})}, {"worst", Zeros({1})}};
  const std::string message = MessageOf([&] { schedule.LoadState(bad); });
  EXPECT_THAT(message, HasSubstr("cooldown is missing"));
  EXPECT_THAT(message, HasSubstr("reductions is -1"));
  EXPECT_THAT(message, HasSubstr("other is unknown here"));
  EXPECT_THAT(message, HasSubstr("best is missing, or not one float64"));
  EXPECT_THAT(message, HasSubstr("worst is unknown here"));
  EXPECT_EQ(schedule.SaveState().tensors.At("best").Item<double>(), 1);
}

TEST(ReduceLrOnPlateau, RefusesBadOptions) {
  Sgd optimizer({{"w", Leaf()}}, {.lr = 1});
  const auto make = [&](const ReduceLrOnPlateauOptions& options) {
    return MessageOf([&] { ReduceLrOnPlateau schedule(&optimizer, options); });
  };
  EXPECT_EQ(make({.factor = 1}), "ReduceLrOnPlateau: factor is 1; it is within [0, 1)");
  EXPECT_THAT(make({.patience = -1}), HasSubstr("patience is -1"));
  EXPECT_THAT(make({.threshold = NAN}), HasSubstr("threshold is nan"));
  EXPECT_THAT(make({.cooldown = -1}), HasSubstr("cooldown is -1"));
  EXPECT_THAT(make({.min_lr = {-1}}), HasSubstr("min_lr is -1"));
  EXPECT_THAT(make({.min_lr = {0, 0}}), HasSubstr("one for all groups or one for each of the 1"));
  EXPECT_THAT(make({.epsilon = -1}), HasSubstr("epsilon is -1"));
  EXPECT_THAT(MessageOf([] { ReduceLrOnPlateau schedule(nullptr); }),
              HasSubstr("optimizer is null"));
}

}  // namespace
}  // namespace lockstep::optim
