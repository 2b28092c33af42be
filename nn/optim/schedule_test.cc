// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/optim/adagrad.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/schedules/cosine.h"
#include "lockstep/nn/optim/schedules/decay.h"
#include "lockstep/nn/optim/schedules/one_cycle.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::optim {
namespace {

Tensor Leaf() { return autograd::SetRequiresGrad(FromVector<float>({1, 2}, {2}), true); }

TEST(WarmupCosine, RisesAndFalls) {
  const ScheduleFunction f =
      WarmupCosine({.warmup_steps = 4, .total_steps = 14, .final_fraction = 0.1});
  EXPECT_DOUBLE_EQ(f(0), 0.25);
  EXPECT_DOUBLE_EQ(f(3), 1);
  EXPECT_DOUBLE_EQ(f(4), 1);
  EXPECT_DOUBLE_EQ(f(9), 0.55);
  EXPECT_DOUBLE_EQ(f(14), 0.1);
  EXPECT_DOUBLE_EQ(f(1000), 0.1);
  EXPECT_DOUBLE_EQ(WarmupCosine({.total_steps = 3})(0), 1);
  // A warm-up over the whole length ends at the final fraction.
  const ScheduleFunction all = WarmupCosine({.warmup_steps = 3, .total_steps = 3});
  EXPECT_DOUBLE_EQ(all(2), 1);
  EXPECT_DOUBLE_EQ(all(3), 0);
}

TEST(WarmupCosine, RefusesBadOptions) {
  EXPECT_THROW(WarmupCosine({}), Error);
  EXPECT_THROW(WarmupCosine({.warmup_steps = -1, .total_steps = 3}), Error);
  EXPECT_THROW(WarmupCosine({.warmup_steps = 4, .total_steps = 3}), Error);
  EXPECT_THROW(WarmupCosine({.total_steps = 3, .final_fraction = 1.5}), Error);
}

// https://github.com/pytorch/pytorch/issues/65342: the learning rate jumps on resume, depending on
// what is constructed and loaded first.
TEST(Schedule, Issue65342AnyLoadOrderGivesTheUninterruptedRates) {
  const auto cosine = WarmupCosine({.total_steps = 1000});
  const Tensor w = Leaf();
  Sgd whole({{"w", w}}, {.lr = 0.1, .momentum = 0.9});
  Schedule uninterrupted(&whole, cosine);
  autograd::SetGrad(w, OnesLike(w));
  for (int step = 0; step < 250; ++step) uninterrupted.Step();
  EXPECT_NEAR(whole.LearningRate(), 0.0853553, 1e-7);
  for (int step = 250; step < 500; ++step) uninterrupted.Step();
  EXPECT_NEAR(whole.LearningRate(), 0.05, 1e-12);
  whole.Step();
  const OptimizerState optimizer_state = whole.SaveState();
  const OptimizerState schedule_state = uninterrupted.SaveState();

  enum Order { kOptimizerFirst, kOptimizerLast, kOptimizerNotAtAll, kBeforeTheScheduleExists };
  for (const Order order :
       {kOptimizerFirst, kOptimizerLast, kOptimizerNotAtAll, kBeforeTheScheduleExists}) {
    Sgd optimizer({{"w", Leaf()}}, {.lr = 0.1, .momentum = 0.9});
    if (order == kBeforeTheScheduleExists) optimizer.LoadState(optimizer_state);
    Schedule schedule(&optimizer, cosine);
    if (order == kOptimizerFirst) optimizer.LoadState(optimizer_state);
    schedule.LoadState(schedule_state);
    if (order == kOptimizerLast) optimizer.LoadState(optimizer_state);
    EXPECT_EQ(schedule.step(), 500);
    EXPECT_NEAR(optimizer.LearningRate(), 0.05, 1e-12) << order;
    schedule.Step();
    EXPECT_NEAR(optimizer.LearningRate(), 0.0498429, 1e-7) << order;
  }
}

TEST(Schedule, MultiStepResumesAtItsMilestones) {
  Sgd optimizer({{"w", Leaf()}}, {.lr = 100});
  Schedule schedule(&optimizer, MultiStepLr({2, 6}, 0.1));
  OptimizerState state;
  state.numbers["step"] = 4;
  schedule.LoadState(state);
  EXPECT_DOUBLE_EQ(optimizer.LearningRate(), 10);
  schedule.Step();
  schedule.Step();
  EXPECT_DOUBLE_EQ(optimizer.LearningRate(), 100 * std::pow(0.1, 2));
}

TEST(Schedule, ChangedBaseRatesCount) {
  AdamW optimizer({{"w", Leaf()}}, {.lr = 1});
  Schedule schedule(&optimizer, MultiStepLr({1}, 0.5));
  schedule.Step();
  optimizer.options().lr = 8;
  EXPECT_DOUBLE_EQ(optimizer.LearningRate(), 4);
}

TEST(Schedule, RefusesWhatIsNotItsState) {
  Sgd optimizer({{"w", Leaf()}}, {.lr = 1});
  Schedule schedule(&optimizer, MultiStepLr({1}, 0.5));
  schedule.Step();
  OptimizerState bad;
  EXPECT_THROW(schedule.LoadState(bad), Error);
  bad.numbers["step"] = -1;
  EXPECT_THROW(schedule.LoadState(bad), Error);
  bad.numbers = {{"step", 3}, {"w.step", 3}};
  EXPECT_THROW(schedule.LoadState(bad), Error);
  EXPECT_EQ(schedule.step(), 1);
  EXPECT_THROW(Schedule(nullptr, MultiStepLr({1}, 0.5)), Error);
  EXPECT_THROW(Schedule(&optimizer, std::function<double(int64_t)>()), Error);
  EXPECT_THROW(Schedule(&optimizer, [](int64_t) { return -1.0; }), Error);
}

TEST(Schedule, AFunctionOfTheStepIsAFactor) {
  Sgd optimizer(
      {{NamedTensors{{"a", Leaf()}}, {.lr = 2}}, {NamedTensors{{"b", Leaf()}}, {.lr = 4}}});
  Schedule schedule(&optimizer,
                    [](int64_t step) { return 1.0 / (1.0 + static_cast<double>(step)); });
  schedule.Step();
  EXPECT_EQ(optimizer.LearningRate(0), 1);
  EXPECT_EQ(optimizer.LearningRate(1), 2);
}

TEST(Schedule, ARefusedStepChangesNothing) {
  Sgd optimizer({{"w", Leaf()}}, {.lr = 1});
  Schedule schedule(&optimizer, [](int64_t step) { return step < 2 ? 0.5 : NAN; });
  schedule.Step();
  EXPECT_THROW(schedule.Step(), Error);
  EXPECT_EQ(schedule.step(), 1);
  EXPECT_EQ(optimizer.LearningRate(), 0.5);
}

TEST(Schedule, RulesOutliveIt) {
  Sgd optimizer({{"w", Leaf()}}, {.lr = 1});
  { Schedule schedule(&optimizer, MultiStepLr({0}, 0.5)); }
  EXPECT_EQ(optimizer.LearningRate(), 0.5);
}

TEST(Schedule, ChangesMomentaAndTheNextOneDoesNot) {
  AdamW optimizer({{"w", Leaf()}}, {.lr = 1, .beta1 = 0.5});
  Schedule cycle(&optimizer, OneCycleLr({.total_steps = 10}));
  EXPECT_EQ(*optimizer.Momentum(), 0.95);
  EXPECT_NEAR(optimizer.LearningRate(), 1.0 / 25, 1e-12);
  EXPECT_EQ(optimizer.options().beta1, 0.5);
  Schedule plain(&optimizer, MultiStepLr({1}, 0.5));
  EXPECT_EQ(*optimizer.Momentum(), 0.5);
}

TEST(Schedule, RefusesWhatTheOptimizerDoesNotHave) {
  Adagrad adagrad({{"w", Leaf()}});
  EXPECT_THROW(Schedule(&adagrad, OneCycleLr({.total_steps = 10})), Error);
  Schedule rates_only(&adagrad, OneCycleLr({.total_steps = 10, .cycle_momentum = false}));
  Sgd sgd({{"w", Leaf()}});
  EXPECT_THROW(Schedule(&sgd, OneCycleLr({.total_steps = 10, .max_lr = {1, 2}})), Error);
}

}  // namespace
}  // namespace lockstep::optim
