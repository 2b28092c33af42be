// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/local_sgd/local_sgd.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/subgroups.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/strategy_state.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using ::testing::HasSubstr;
using testing_util::RunRanks;
using testing_util::ValuesOf;
using testing_util::Weights;
using Values = std::vector<double>;

// The weight after each step, with the gradient (rank + 1) w.
Values Train(int rank, std::shared_ptr<comm::Communicator> world, const LocalSgdOptions& options,
             Values* collectives = nullptr) {
  auto model = std::make_shared<Weights>(Values{1024});
  DistributedDataParallel ddp(model, world);
  LocalSgd local(ddp, options);
  optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.25});
  Values values;
  for (int step = 0; step < 6; ++step) {
    const int64_t before = world->sequence();
    optimizer.ZeroGrad();
    {
      const auto scope = local.BackwardScope();
      const Tensor& w = (*model)[0];
      autograd::Backward(Sum(w * w) * (0.5 * (rank + 1)));
    }
    optimizer.Step();
    local.AfterStep();
    values.push_back((*model)[0].Item<double>());
    if (collectives) collectives->push_back(static_cast<double>(world->sequence() - before));
  }
  EXPECT_EQ(local.steps(), 6);
  return values;
}

TEST(LocalSgdTest, AveragesParametersEveryPeriodAfterTheWarmUp) {
  Values collectives;
  const auto outcomes = RunRanks(2, [&](int rank, auto world) {
    return Train(rank, world, {.period = 2, .warmup_steps = 1}, rank == 0 ? &collectives : nullptr);
  });
  // Rank r multiplies by 3/4 or 1/2 a step, both together by 5/8.
  EXPECT_EQ(outcomes[0].values, (Values{640, 480, 260, 195, 105.625, 79.21875}));
  EXPECT_EQ(outcomes[1].values, (Values{640, 320, 260, 130, 105.625, 52.8125}));
  EXPECT_EQ(collectives, (Values{1, 0, 1, 0, 1, 0}));
}

TEST(LocalSgdTest, APeriodOfOneIsDataParallelTraining) {
  EXPECT_EQ(
      ValuesOf(2, [](int rank, auto world) { return Train(rank, world, {.period = 1}); }),
      ValuesOf(2, [](int rank, auto world) { return Train(rank, world, {.warmup_steps = 100}); }));
}

// Pairs average after every second step, and all four after every fourth.
TEST(LocalSgdTest, HierarchicalAverages) {
  const auto outcomes = RunRanks(4, [](int rank, auto world) {
    const std::shared_ptr<comm::Communicator> pair = comm::Split(*world, rank / 2);
    auto model = std::make_shared<Weights>(Values{0});
    DistributedDataParallel ddp(model, world);
    LocalSgd local(ddp, {.period = 4, .warmup_steps = 1, .inner = {{2, pair}}});
    Values values;
    for (int step = 0; step < 7; ++step) {
      AddInPlace(Detach((*model)[0]), rank);
      EXPECT_EQ(local.AfterStep(), step == 2 || step == 4 || step == 6);
      values.push_back((*model)[0].template Item<double>());
    }
    return values;
  });
  EXPECT_EQ(outcomes[0].values, (Values{0, 0, 1.5, 1.5, 7.5, 7.5, 8.5}));
  EXPECT_EQ(outcomes[1].values, (Values{1, 2, 1.5, 2.5, 7.5, 8.5, 8.5}));
}

// A run that goes on in the middle of a period averages when the undisturbed one would have.
TEST(LocalSgdTest, TheStateKnowsThePlaceInThePeriod) {
  ValuesOf(2, [](int, auto world) {
    auto model = std::make_shared<Weights>(Values{1});
    DistributedDataParallel ddp(model, world);
    const LocalSgdOptions options = {.period = 3, .warmup_steps = 2};
    Values averages, resumed;
    StrategyState state;
    LocalSgd local(ddp, options);
    for (int step = 0; step < 10; ++step) {
      averages.push_back(local.AfterStep());
      LocalSgd next(ddp, options);
      if (step > 0) next.LoadState(state);
      EXPECT_EQ(next.BackwardScope() != nullptr, step >= 2) << "no warm-up again";
      resumed.push_back(next.AfterStep());
      state = next.SaveState();
    }
    EXPECT_EQ(averages, (Values{0, 0, 0, 0, 1, 0, 0, 1, 0, 0}));
    EXPECT_EQ(resumed, averages);
    EXPECT_THAT(MessageOf([&] { local.LoadState({}); }),
                HasSubstr("a state of 0 shared and 0 own tensors"));
    return Values();
  });
}

TEST(LocalSgdTest, Refusals) {
  ValuesOf(1, [](int, auto world) {
    auto model = std::make_shared<Weights>(Values{1});
    {
      DistributedDataParallel ddp(model, world);
      EXPECT_THAT(MessageOf([&] { LocalSgd local(ddp, {.period = 0}); }), HasSubstr("period 0"));
      EXPECT_THAT(MessageOf([&] { LocalSgd local(ddp, {.warmup_steps = -1}); }),
                  HasSubstr("warmup_steps -1"));
    }
    {
      DistributedDataParallel ddp(model, world);
      const auto refused = [&](std::vector<InnerAverage> inner, const char* part) {
        EXPECT_THAT(MessageOf([&] { LocalSgd local(ddp, {.period = 8, .inner = inner}); }),
                    HasSubstr(part));
      };
      refused({{2, nullptr}}, "inner average 0 has no group and period 2, and the next one 8");
      refused({{3, world}}, "inner average 0 has period 3, and the next one 8");
      refused({{4, world}, {2, world}}, "inner average 0 has period 4, and the next one 2");
      refused({{2, world}, {8, world}}, "inner average 1 has period 8, and the next one 8");
      refused({{0, world}}, "period 0");
    }
    DistributedDataParallel stale(model, world, {.staleness = 1});
    EXPECT_THAT(MessageOf([&] { LocalSgd local(stale, {}); }), HasSubstr("has staleness"));
    return Values();
  });
}

}  // namespace
}  // namespace lockstep::strategies
