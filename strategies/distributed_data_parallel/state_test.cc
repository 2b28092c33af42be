// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a strategy keeps between steps goes into a state and comes back: a run that goes on with
// everything made anew is, bit for bit, the run that was not disturbed. Ranks are threads.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/communication_hook.h"
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/power_sgd.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/strategy_state.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies {
namespace {

using ::testing::HasSubstr;
using testing_util::AllParameters;
using testing_util::Outcome;
using testing_util::Rows;
using testing_util::RunRanks;
using testing_util::ValuesOf;
using testing_util::Weights;
using Values = std::vector<double>;
using MakeOptions = std::function<DistributedDataParallelOptions()>;

// Copies, as a file would make them.
NamedTensors Copies(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors) copies.Insert(name, Clone(tensor));
  return copies;
}

struct Saved {
  NamedTensors model;
  optim::OptimizerState optimizer;
  StrategyState strategy;
};

// Steps `first` to `last` of a training that begins with what is in `saved`, and leaves that there.
Values Train(int rank, std::shared_ptr<comm::Communicator> world,
             const DistributedDataParallelOptions& options, int64_t first, int64_t last,
             Saved& saved) {
  ManualSeed(7);
  auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {3, 16, 12, 2}});
  DistributedDataParallel ddp(model, world, options);
  optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.05, .momentum = 0.9});
  if (first > 0) {
    model->LoadStateDict(saved.model);
    optimizer.LoadState(saved.optimizer);
    ddp.LoadState(saved.strategy);
  }
  for (int64_t step = first; step < last; ++step) {
    optimizer.ZeroGrad();
    const NamedTensors batch = Rows(8 * step + 4 * rank, 4);
    autograd::Backward(MseLoss((*model)(batch.At("inputs")), batch.At("targets")));
    optimizer.Step();
  }
  const optim::OptimizerState moments = optimizer.SaveState();
  const StrategyState strategy = ddp.SaveState();
  saved = {Copies(model->StateDict()),
           {Copies(moments.tensors), moments.numbers},
           {Copies(strategy.shared), Copies(strategy.own)}};
  return AllParameters(*model);
}

void ExpectResumedIsUndisturbed(const MakeOptions& before, const MakeOptions& after,
                                bool same_on_all_ranks = true) {
  for (const int64_t middle : {1, 2, 4, 5}) {
    const Values whole = ValuesOf(
        2,
        [&](int rank, auto world) {
          Saved saved;
          return Train(rank, world, before(), 0, 9, saved);
        },
        same_on_all_ranks);
    const Values resumed = ValuesOf(
        2,
        [&](int rank, auto world) {
          Saved saved;
          Train(rank, world, before(), 0, middle, saved);
          return Train(rank, world, after(), middle, 9, saved);
        },
        same_on_all_ranks);
    EXPECT_EQ(resumed, whole) << middle;
  }
}

TEST(StrategyStateOfDdpTest, PowerSgdGoesOnWithItsErrorsAndItsQ) {
  for (const bool warm_start : {true, false}) {
    const auto options = [&](int64_t bucket_cap_bytes) {
      return [=] {
        return DistributedDataParallelOptions{
            .bucket_cap_bytes = bucket_cap_bytes,
            .first_bucket_bytes = 1,
            .communication_hook = std::make_shared<PowerSgdHook>(
                PowerSgdOptions{.rank = 1, .start_step = 2, .warm_start = warm_start})};
      };
    };
    ExpectResumedIsUndisturbed(options(100), options(100));
    ExpectResumedIsUndisturbed(options(100), options(1000));
  }
}

// Each of the two parts is needed: without it the run is another.
TEST(StrategyStateOfDdpTest, PowerSgdsPartsAreWhereTheyBelong) {
  ValuesOf(2, [](int rank, auto world) {
    const auto options = [] {
      return DistributedDataParallelOptions{.communication_hook = std::make_shared<PowerSgdHook>(
                                                PowerSgdOptions{.rank = 1, .start_step = 2})};
    };
    Saved saved;
    Train(rank, world, options(), 0, 5, saved);
    EXPECT_EQ(saved.strategy.shared.At("hook.step").template Item<int64_t>(), 5);
    const Tensor& error = saved.strategy.own[0].second;
    EXPECT_THAT(saved.strategy.own[0].first, HasSubstr("hook.error."));
    const Tensor other = Clone(error);
    world->Broadcast(other).Wait();
    EXPECT_EQ(Max(Abs(other - error)).template Item<double>() > 0, rank == 1)
        << "errors are each rank's own";
    Values results;
    for (const bool own : {true, false}) {
      Saved part = saved;
      if (!own) part.strategy.own = {};
      const Values end = Train(rank, world, options(), 5, 7, part);
      results.push_back(end[0]);
    }
    EXPECT_NE(results[0], results[1]);
    return results;
  });
}

TEST(StrategyStateOfDdpTest, AveragesUnderWayArriveAfterwards) {
  for (const int64_t staleness : {1, 2, 3}) {
    const auto options = [&](int64_t bucket_cap_bytes) {
      return [=] {
        return DistributedDataParallelOptions{
            .bucket_cap_bytes = bucket_cap_bytes, .first_bucket_bytes = 1, .staleness = staleness};
      };
    };
    ExpectResumedIsUndisturbed(options(100), options(100));
    ExpectResumedIsUndisturbed(options(100), options(1000));
  }
  // A hook that averages nothing leaves each rank its own.
  const auto noop = [] {
    return DistributedDataParallelOptions{.communication_hook = std::make_shared<NoOpHook>(),
                                          .staleness = 2};
  };
  ExpectResumedIsUndisturbed(noop, noop, /*same_on_all_ranks=*/false);
}

// Which gradients an average lacks is known to each rank of its own ones only.
TEST(StrategyStateOfDdpTest, AveragesUnderWayRememberWhatTheyLack) {
  const auto run = [](int rank, std::shared_ptr<comm::Communicator> world, bool resumes) {
    auto model = std::make_shared<Weights>(Values{0, 0, 0});
    const DistributedDataParallelOptions options{.find_unused_parameters = true, .staleness = 1};
    auto ddp = std::make_unique<DistributedDataParallel>(model, world, options);
    Values values;
    for (int step = 0; step < 5; ++step) {
      model->ZeroGrad();
      // a always, b on rank 1 in even steps, c never.
      const Tensor& a = (*model)[0];
      autograd::Backward(Sum(rank == 1 && step % 2 == 0 ? a + (*model)[1] : a) * (step + 1.0));
      for (size_t i = 0; i < 3; ++i)
        values.push_back(testing_util::ValueOf(autograd::Grad((*model)[i])));
      if (!resumes) continue;
      const StrategyState state = ddp->SaveState();
      const StrategyState copy = {Copies(state.shared), Copies(state.own)};
      ddp = nullptr;
      ddp = std::make_unique<DistributedDataParallel>(model, world, options);
      ddp->LoadState(copy);
      if (step > 0) continue;
      ddp = nullptr;
      ddp = std::make_unique<DistributedDataParallel>(model, world, options);
      EXPECT_THAT(MessageOf([&] {
                    ddp->LoadState({copy.shared, {}});
                  }),
                  HasSubstr("load it on as many ranks"));
      ddp->LoadState(copy);
    }
    return values;
  };
  const Values whole = ValuesOf(2, [&](int rank, auto world) { return run(rank, world, false); });
  EXPECT_EQ(ValuesOf(2, [&](int rank, auto world) { return run(rank, world, true); }), whole);
  EXPECT_EQ(whole, (Values{-1, -1, -1, 1, 0.5, -1, 2, -1, -1, 3, 1.5, -1, 4, -1, -1}));
}

TEST(StrategyStateOfDdpTest, WhatDoesNotFitIsRefused) {
  ValuesOf(2, [](int rank, auto world) {
    const auto powersgd = [](int64_t k) {
      return DistributedDataParallelOptions{.communication_hook = std::make_shared<PowerSgdHook>(
                                                PowerSgdOptions{.rank = k, .start_step = 2})};
    };
    Saved compressed, stale, plain;
    Train(rank, world, powersgd(1), 0, 4, compressed);
    Train(rank, world, {.staleness = 2}, 0, 4, stale);
    Train(rank, world, {}, 0, 4, plain);
    EXPECT_TRUE(plain.strategy.empty());
    const auto refused = [&](const Saved& saved, const DistributedDataParallelOptions& options,
                             const char* part) {
      Saved copy = saved;
      const Error error = ErrorOf([&] { Train(rank, world, options, 4, 5, copy); });
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(error.message(), HasSubstr(part));
    };
    refused(compressed, {}, "the state is of one with a communication_hook");
    refused(compressed, {.communication_hook = std::make_shared<NoOpHook>()},
            "this communication_hook keeps no state, and is to load step");
    refused(compressed, powersgd(2), "no such gradient is compressed");
    refused(compressed,
            {.communication_hook = std::make_shared<PowerSgdHook>(
                 PowerSgdOptions{.rank = 2, .start_step = 2, .min_compression_rate = 0.5})},
            "and rank 2 wants [");
    refused(stale, {}, "for staleness 0 and this communication_hook");
    refused(stale, {.staleness = 1}, "for staleness 1 and this communication_hook");
    Saved other = stale;
    other.strategy.shared.Set("pending.1.gradient." + other.model[0].first, Zeros({2}));
    refused(other, {.staleness = 2}, "the state has [2] 1.gradient.");
    other = compressed;
    other.strategy.shared.Insert("hook.q.none", Zeros({2}));
    refused(other, powersgd(1), "no such gradient is compressed");
    other = plain;
    other.strategy.own.Insert("errors", Zeros({2}));
    refused(other, {}, "the state has errors, which is not its");
    return Values();
  });
}

}  // namespace
}  // namespace lockstep::strategies
