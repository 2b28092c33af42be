// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The shapes of the schedules and what they refuse; tests/parity/optimizers compares every one with
// PyTorch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/nn/optim/schedules/combine.h"
#include "lockstep/nn/optim/schedules/cosine.h"
#include "lockstep/nn/optim/schedules/decay.h"
#include "lockstep/nn/optim/schedules/factor.h"
#include "lockstep/nn/optim/schedules/one_cycle.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::optim {
namespace {

using ::testing::HasSubstr;

Tensor Leaf() { return autograd::SetRequiresGrad(FromVector<float>({1, 2}, {2}), true); }

TEST(DecayTest, PowersOfGamma) {
  const ScheduleFunction step = StepLr(3, 0.5);
  EXPECT_EQ(step(2), 1);
  EXPECT_EQ(step(3), 0.5);
  EXPECT_EQ(step(8), 0.25);
  EXPECT_EQ(MultiStepLr({2, 6}, 0.5)(6), 0.25);
  EXPECT_EQ(MultiStepLr({}, 0.5)(6), 1);
  EXPECT_EQ(ExponentialLr(0.5)(3), 0.125);
}

TEST(DecayTest, Refuses) {
  EXPECT_EQ(MessageOf([] { StepLr(0); }), "StepLr: step_size is 0; it is at least 1");
  EXPECT_THAT(MessageOf([] { StepLr(1, 0); }), HasSubstr("gamma is 0"));
  EXPECT_THAT(MessageOf([] { MultiStepLr({3, 3}); }), HasSubstr("milestones is [3, 3]"));
  EXPECT_THAT(MessageOf([] { MultiStepLr({-1}); }), HasSubstr("milestones is [-1]"));
  EXPECT_THAT(MessageOf([] { MultiStepLr({1}, NAN); }), HasSubstr("gamma is nan"));
  EXPECT_THAT(MessageOf([] { ExponentialLr(-1); }), HasSubstr("gamma is -1"));
}

TEST(FactorTest, WarmsUp) {
  const ScheduleFunction line = LinearLr({.start_factor = 0.25, .total_iters = 3});
  EXPECT_DOUBLE_EQ(line(0), 0.25);
  EXPECT_DOUBLE_EQ(line(1), 0.5);
  EXPECT_DOUBLE_EQ(line(3), 1);
  EXPECT_DOUBLE_EQ(line(9), 1);
  const ScheduleFunction constant = ConstantLr({.factor = 0.5, .total_iters = 2});
  EXPECT_EQ(constant(1), 0.5);
  EXPECT_EQ(constant(2), 1);
}

TEST(FactorTest, LambdasByGroup) {
  Sgd optimizer(
      {{NamedTensors{{"a", Leaf()}}, {.lr = 2}}, {NamedTensors{{"b", Leaf()}}, {.lr = 4}}});
  const auto half = [](int64_t) { return 0.5; };
  const auto rising = [](int64_t step) { return static_cast<double>(step); };
  Schedule schedule(&optimizer, LambdaLr({half, rising}));
  schedule.Step();
  schedule.Step();
  EXPECT_EQ(optimizer.LearningRate(0), 1);
  EXPECT_EQ(optimizer.LearningRate(1), 8);
  EXPECT_THAT(MessageOf([&] { Schedule(&optimizer, LambdaLr({half})); }),
              HasSubstr("the function is for 1 groups and the optimizer has 2"));
}

TEST(FactorTest, Refuses) {
  EXPECT_THAT(MessageOf([] { ConstantLr({.factor = 1.5}); }), HasSubstr("factor is 1.5"));
  EXPECT_THAT(MessageOf([] { ConstantLr({.total_iters = -1}); }), HasSubstr("total_iters is -1"));
  EXPECT_THAT(MessageOf([] { LinearLr({.start_factor = 0}); }), HasSubstr("start_factor is 0"));
  EXPECT_THAT(MessageOf([] { LinearLr({.end_factor = -1}); }), HasSubstr("end_factor is -1"));
  EXPECT_THAT(MessageOf([] { LinearLr({.total_iters = 0}); }), HasSubstr("total_iters is 0"));
  EXPECT_THAT(MessageOf([] { LambdaLr({}); }), HasSubstr("LambdaLr: the number of functions is 0"));
  EXPECT_THAT(MessageOf([] { LambdaLr({nullptr}); }), HasSubstr("the function of group 0 is null"));
}

TEST(CosineTest, FallsRisesAndRestarts) {
  const ScheduleFunction f = CosineAnnealingLr({.t_max = 4, .eta_min = 0.5});
  EXPECT_EQ(f.LearningRate(0, 0, 2), 2);
  EXPECT_DOUBLE_EQ(f.LearningRate(2, 0, 2), 1.25);
  EXPECT_EQ(f.LearningRate(4, 0, 2), 0.5);
  EXPECT_EQ(f.LearningRate(8, 0, 2), 2);
  EXPECT_EQ(f.LearningRate(8000004, 0, 2), 0.5);
  const ScheduleFunction restarts = CosineAnnealingWarmRestarts({.t_0 = 2, .t_mult = 3});
  EXPECT_DOUBLE_EQ(restarts(1), 0.5);
  EXPECT_EQ(restarts(2), 1);
  EXPECT_DOUBLE_EQ(restarts(5), 0.5);
  EXPECT_EQ(restarts(8), 1);
  EXPECT_EQ(CosineAnnealingWarmRestarts({.t_0 = 3})(3000000), 1);
  // A period that no longer fits into an int64 is the last.
  EXPECT_GT(CosineAnnealingWarmRestarts({.t_0 = 2, .t_mult = int64_t{1} << 62})(INT64_MAX), 0);
}

TEST(CosineTest, Refuses) {
  EXPECT_THAT(MessageOf([] { CosineAnnealingLr({}); }), HasSubstr("t_max is 0; it is at least 1"));
  EXPECT_THAT(MessageOf([] { CosineAnnealingLr({.t_max = 3, .eta_min = -1}); }),
              HasSubstr("eta_min is -1"));
  EXPECT_THAT(MessageOf([] { CosineAnnealingWarmRestarts({}); }), HasSubstr("t_0 is 0"));
  EXPECT_THAT(MessageOf([] { CosineAnnealingWarmRestarts({.t_0 = 1, .t_mult = 0}); }),
              HasSubstr("t_mult is 0"));
  EXPECT_THAT(MessageOf([] { CosineAnnealingWarmRestarts({.t_0 = 1, .eta_min = NAN}); }),
              HasSubstr("eta_min is nan"));
}

TEST(OneCycleTest, ReachesItsCorners) {
  const OneCycleLrOptions options{
      .total_steps = 20, .pct_start = 0.25, .div_factor = 8, .final_div_factor = 16};
  const ScheduleFunction f = OneCycleLr(options);
  EXPECT_DOUBLE_EQ(f.LearningRate(0, 0, 4), 0.5);
  EXPECT_DOUBLE_EQ(f.LearningRate(4, 0, 4), 4);
  EXPECT_DOUBLE_EQ(f.LearningRate(19, 0, 4), 0.5 / 16);
  EXPECT_DOUBLE_EQ(f.Momentum(0, 0, 0), 0.95);
  EXPECT_DOUBLE_EQ(f.Momentum(4, 0, 0), 0.85);
  EXPECT_DOUBLE_EQ(f.Momentum(19, 0, 0), 0.95);
  // After the last optimizer step the values stay; more steps than were planned are a mistake.
  EXPECT_EQ(f.LearningRate(20, 0, 4), f.LearningRate(19, 0, 4));
  EXPECT_THAT(MessageOf([&] { f.LearningRate(21, 0, 4); }), HasSubstr("step 21 of 20"));
}

TEST(OneCycleTest, PeaksByGroupAndThreePhases) {
  const ScheduleFunction f = OneCycleLr({.total_steps = 20,
                                         .max_lr = {1, 10},
                                         .pct_start = 0.25,
                                         .anneal_strategy = AnnealStrategy::kLinear,
                                         .cycle_momentum = false,
                                         .three_phase = true});
  EXPECT_EQ(f.group_count(), 2u);
  EXPECT_FALSE(f.changes_momentum());
  EXPECT_DOUBLE_EQ(f.LearningRate(4, 1, 0), 10);
  EXPECT_NEAR(f.LearningRate(8, 1, 0), 0.4, 1e-12);
  EXPECT_NEAR(f.LearningRate(8, 0, 0), 0.04, 1e-12);
}

TEST(OneCycleTest, TinyLengths) {
  for (const int64_t total : {1, 2, 3}) {
    for (const double part : {0.0, 0.5, 1.0}) {
      const ScheduleFunction f = OneCycleLr({.total_steps = total, .pct_start = part});
      for (int64_t step = 0; step <= total; ++step) {
        EXPECT_TRUE(std::isfinite(f(step))) << total << " " << part << " " << step;
      }
    }
  }
}

TEST(OneCycleTest, Refuses) {
  EXPECT_THAT(MessageOf([] { OneCycleLr({}); }), HasSubstr("total_steps is 0; it is at least 1"));
  EXPECT_THAT(MessageOf([] { OneCycleLr({.total_steps = 5, .max_lr = {-1}}); }),
              HasSubstr("max_lr is -1"));
  EXPECT_THAT(MessageOf([] { OneCycleLr({.total_steps = 5, .pct_start = 1.5}); }),
              HasSubstr("pct_start is 1.5"));
  EXPECT_THAT(
      MessageOf([] { OneCycleLr({.total_steps = 5, .pct_start = 0.75, .three_phase = true}); }),
      HasSubstr("with three_phase it is at most 0.5"));
  EXPECT_THAT(MessageOf([] { OneCycleLr({.total_steps = 5, .base_momentum = 1}); }),
              HasSubstr("base_momentum is 1"));
  EXPECT_THAT(MessageOf([] { OneCycleLr({.total_steps = 5, .max_momentum = -1}); }),
              HasSubstr("max_momentum is -1"));
  EXPECT_THAT(MessageOf([] { OneCycleLr({.total_steps = 5, .div_factor = 0}); }),
              HasSubstr("div_factor is 0"));
  EXPECT_THAT(MessageOf([] { OneCycleLr({.total_steps = 5, .final_div_factor = NAN}); }),
              HasSubstr("final_div_factor is nan"));
}

TEST(SequentialTest, EachFromItsOwnStart) {
  const ScheduleFunction f = SequentialLr(
      {LinearLr({.start_factor = 0.5, .total_iters = 4}), ExponentialLr(0.5), ConstantLr()},
      {4, 6});
  EXPECT_DOUBLE_EQ(f(0), 0.5);
  EXPECT_DOUBLE_EQ(f(3), 0.875);
  EXPECT_DOUBLE_EQ(f(4), 1);
  EXPECT_DOUBLE_EQ(f(5), 0.5);
  EXPECT_DOUBLE_EQ(f(6), 1.0 / 3);
  EXPECT_DOUBLE_EQ(f(11), 1);
}

TEST(SequentialTest, MomentaOfTheOneThatHasThem) {
  Adam optimizer({{"w", Leaf()}}, {.lr = 1, .beta1 = 0.5});
  Schedule schedule(&optimizer, SequentialLr({ConstantLr(), OneCycleLr({.total_steps = 10})}, {2}));
  schedule.Step();
  EXPECT_EQ(*optimizer.Momentum(), 0.5);
  schedule.Step();
  EXPECT_EQ(*optimizer.Momentum(), 0.95);
}

TEST(ChainedTest, FactorsMultiply) {
  const ScheduleFunction f = ChainedLr(
      {ConstantLr({.factor = 0.5, .total_iters = 2}), ExponentialLr(0.5), StepLr(3, 0.25)});
  EXPECT_DOUBLE_EQ(f(1), 0.25);
  EXPECT_DOUBLE_EQ(f(3), 0.125 * 0.25);
  // The floor of a link holds.
  const ScheduleFunction floor =
      ChainedLr({ExponentialLr(0.5), CosineAnnealingLr({.t_max = 4, .eta_min = 0.25})});
  EXPECT_DOUBLE_EQ(floor(4), 0.25);
  const ScheduleFunction momenta = ChainedLr({OneCycleLr({.total_steps = 10}), ConstantLr()});
  EXPECT_TRUE(momenta.changes_momentum());
  EXPECT_EQ(momenta.Momentum(0, 0, 0.5), 0.95);
}

TEST(CombineTest, Refuses) {
  const auto one = [](int64_t) { return 1.0; };
  const ScheduleFunction two_groups = LambdaLr({one, one}),
                         three_groups = LambdaLr({one, one, one});
  EXPECT_THAT(MessageOf([] { ChainedLr({}); }), HasSubstr("the number of schedules is 0"));
  EXPECT_THAT(MessageOf([&] {
                ChainedLr({two_groups, three_groups});
              }),
              HasSubstr("schedule 1 is for 3 groups and one before it for 2"));
  EXPECT_THAT(MessageOf([&] { ChainedLr({std::function<double(int64_t)>()}); }),
              HasSubstr("schedule 0 is null"));
  EXPECT_THAT(MessageOf([] { SequentialLr({}, {}); }), HasSubstr("give at least one"));
  EXPECT_THAT(MessageOf([] {
                SequentialLr({ConstantLr(), ConstantLr()}, {});
              }),
              HasSubstr("milestones is [] for 2 schedules"));
  for (const std::vector<int64_t>& bad : {std::vector<int64_t>{0, 3}, {3, 3}, {-1, 2}}) {
    EXPECT_THAT(MessageOf([&] {
                  SequentialLr({ConstantLr(), ConstantLr(), ConstantLr()}, bad);
                }),
                HasSubstr("above 0, and rise"));
  }
  EXPECT_EQ(ChainedLr({ConstantLr(), two_groups}).group_count(), 2u);
}

}  // namespace
}  // namespace lockstep::optim
