// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// When parameters are stepped: inside of backward, or by averages of earlier steps. And what the
// statistics say. Ranks are threads.
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/reduction_statistics.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies {
namespace {

using autograd::Backward;
using autograd::Grad;
using ::testing::HasSubstr;
using testing_util::AllParameters;
using testing_util::Rows;
using testing_util::RunRanks;
using testing_util::ValueOf;
using testing_util::ValuesOf;
using testing_util::Weights;
using Values = std::vector<double>;

// Four steps of two micro-batches, of Adam in backward or after it.
Values TrainFused(int rank, std::shared_ptr<comm::Communicator> world, bool fused) {
  ManualSeed(7);
  auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {3, 7, 5, 2}});
  optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
  DistributedDataParallel ddp(model, world,
                              {.bucket_cap_bytes = 60,
                               .first_bucket_bytes = 1,
                               .optimizer_in_backward = fused ? &optimizer : nullptr});
  for (int64_t step = 0; step < 4; ++step) {
    for (int64_t i = 0; i < 2; ++i) {
      std::optional<DistributedDataParallel::NoSync> no_sync;
      if (i == 0) no_sync.emplace(ddp);
      const NamedTensors batch = Rows(8 * step + 4 * i + 2 * rank, 2);
      Backward(MseLoss((*model)(batch.At("inputs")), batch.At("targets")));
    }
    if (fused) {
      for (const Tensor& parameter : model->Parameters()) EXPECT_FALSE(Grad(parameter).defined());
    } else {
      optimizer.Step();
      optimizer.ZeroGrad();
    }
    EXPECT_GT(ddp.bucket_count(), 2);
  }
  return AllParameters(*model);
}

TEST(OptimizerInBackwardTest, ChangesNoBitAndLeavesNoGradients) {
  const auto train = [](bool fused) {
    return ValuesOf(2, [&](int rank, auto world) { return TrainFused(rank, world, fused); });
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(OptimizerInBackwardTest, Refusals) {
  ValuesOf(2, [](int, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 1});
    optim::Sgd optimizer(model->NamedParameters(), {.lr = 1});
    const auto refused = [&](DistributedDataParallelOptions options, const char* part) {
      options.optimizer_in_backward = &optimizer;
      EXPECT_THAT(MessageOf([&] { DistributedDataParallel ddp(model, world, options); }),
                  HasSubstr(part));
    };
    refused({.find_unused_parameters = true}, "does not go with find_unused_parameters");
    refused({.static_graph = true}, "does not go with static_graph");
    refused({.gradient_as_bucket_view = true}, "does not go with gradient_as_bucket_view");
    refused({.check_finite = true}, "does not go with check_finite");
    refused({.staleness = 1}, "does not go with staleness");
    auto spread = std::make_shared<Weights>(Values{1, 1});
    (*spread)[1].SetData(Full({1}, 1.0, {.device = Cpu(1)}));
    EXPECT_THAT(MessageOf([&] {
                  DistributedDataParallel ddp(spread, world, {.optimizer_in_backward = &optimizer});
                }),
                HasSubstr("b is on cpu:1 and not on cpu:0"));
    DistributedDataParallel ddp(model, world, {.optimizer_in_backward = &optimizer});
    EXPECT_THAT(MessageOf([&] { Backward(Sum((*model)[0])); }),
                HasSubstr("Parameters of other buckets may have been stepped"));
    return Values();
  });
}

// The average that a backward leaves is that of `staleness` steps ago, whatever the buckets.
TEST(StalenessTest, GradientsArriveLater) {
  for (const int64_t staleness : {1, 2, 3}) {
    ValuesOf(2, [&](int rank, auto world) {
      auto model = std::make_shared<Weights>(Values{0, 0});
      DistributedDataParallel ddp(
          model, world, {.bucket_cap_bytes = 1, .first_bucket_bytes = 1, .staleness = staleness});
      optim::Sgd optimizer(model->NamedParameters(), {.lr = 1});
      Values values;
      for (int step = 0; step < 7; ++step) {
        optimizer.ZeroGrad();
        Backward(Sum(((*model)[0] + (*model)[1] * 2.0) * (rank + 0.5 + step)));
        EXPECT_EQ(ddp.statistics().staleness, staleness);
        EXPECT_EQ(ddp.statistics().collectives, 2);
        const bool has = step >= staleness;
        const double then = static_cast<double>(step - staleness + 1);
        EXPECT_EQ(ValueOf(Grad((*model)[0])), has ? then : -1);
        EXPECT_EQ(ValueOf(Grad((*model)[1])), has ? 2 * then : -1);
        optimizer.Step();
        values.push_back((*model)[0].template Item<double>());
      }
      ddp.FinishPending();
      return values;
    });
  }
}

TEST(StalenessTest, AccumulatesAndFindsUnusedParameters) {
  ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{0, 0});
    DistributedDataParallel ddp(model, world, {.find_unused_parameters = true, .staleness = 1});
    for (int step = 0; step < 4; ++step) {
      model->ZeroGrad();
      {
        DistributedDataParallel::NoSync no_sync(ddp);
        Backward(Sum((*model)[0] * (rank + 1)));
      }
      Backward(Sum((*model)[step % 2 == 0 ? 0 : 1] * (rank + 1)));
      if (step == 0) continue;
      const bool then_a = step % 2 == 1;  // the step before used a only
      EXPECT_EQ(ValueOf(Grad((*model)[0])), then_a ? 3 : 1.5);
      EXPECT_EQ(ValueOf(Grad((*model)[1])), then_a ? -1 : 1.5);
    }
    return Values();
  });
  // An unused parameter is an error as ever, in the step in which the averages arrive.
  ValuesOf(2, [](int, auto world) {
    auto model = std::make_shared<Weights>(Values{0, 0});
    DistributedDataParallel ddp(model, world, {.staleness = 1});
    Backward(Sum((*model)[0]));
    EXPECT_THAT(MessageOf([&] { Backward(Sum((*model)[0])); }), HasSubstr("b (on 2 of 2 ranks"));
    return Values();
  });
}

TEST(StatisticsTest, SayWhereTheTimeWent) {
  ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {64, 256, 256, 8}});
    DistributedDataParallel ddp(model, world,
                                {.bucket_cap_bytes = 100000, .first_bucket_bytes = 1000});
    int64_t elements = 0;
    for (const Tensor& parameter : model->Parameters()) elements += parameter.numel();
    for (int step = 0; step < 3; ++step) {
      Backward(Sum((*model)(Full({4, 64}, 1.0 + rank))));
      const ReductionStatistics s = ddp.statistics();
      EXPECT_EQ(s.buckets.size(), static_cast<size_t>(s.collectives));
      EXPECT_EQ(s.bytes, 4 * (elements + s.collectives));
      EXPECT_GT(s.bytes_received, 0);
      EXPECT_EQ(s.staleness, 0);
      EXPECT_EQ(s.step_seconds > 0, step > 0) << "since the last backward";
      EXPECT_LE(s.compute_seconds, s.step_seconds);
      EXPECT_GE(s.exposed_seconds, 0);
      double busy = 0;
      int64_t bytes = 0;
      for (const BucketStatistics& bucket : s.buckets) {
        EXPECT_GT(bucket.latency_seconds, 0);
        EXPECT_LE(bucket.busy_seconds, bucket.latency_seconds + 1e-9);
        EXPECT_GE(bucket.BytesPerSecond(), 0);
        busy += bucket.busy_seconds;
        bytes += bucket.bytes;
      }
      EXPECT_EQ(bytes, 4 * elements);
      EXPECT_DOUBLE_EQ(busy, s.communication_seconds);
      EXPECT_GE(s.HiddenShare(), 0);
      EXPECT_LE(s.HiddenShare(), 1);
      EXPECT_THAT(s.ToString(), HasSubstr("exposed;"));
    }
    return Values();
  });
  EXPECT_EQ(ReductionStatistics().HiddenShare(), 1);
  ReductionStatistics half;
  half.communication_seconds = 2;
  half.exposed_seconds = 1;
  EXPECT_EQ(half.HiddenShare(), 0.5);
  half.exposed_seconds = 3;
  EXPECT_EQ(half.HiddenShare(), 0);
}

}  // namespace
}  // namespace lockstep::strategies
