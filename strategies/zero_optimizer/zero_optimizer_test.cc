// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The same numbers as the optimizer on every rank, whole states, memory, collectives. Ranks are
// threads.
#include "lockstep/strategies/zero_optimizer/zero_optimizer.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/zero_optimizer/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

using ::testing::ElementsAre;
using testing_util::ExpectSame;
using testing_util::OddModel;
using testing_util::Trained;
using testing_util::TrainOn;
using testing_util::TrainSettings;
using testing_util::ValuesOf;
using testing_util::Weights;
using Values = std::vector<double>;

// Against the same settings without sharding, on as many ranks.
void ExpectAsUnsharded(int ranks, TrainSettings settings) {
  SCOPED_TRACE(::testing::Message() << ranks << " ranks");
  settings.zero = false;
  const Trained unsharded = TrainOn(ranks, settings);
  EXPECT_FALSE(unsharded.state.numbers.empty());
  settings.zero = true;
  ExpectSame(TrainOn(ranks, settings), unsharded);
}

class EachOptimizerTest : public ::testing::TestWithParam<const char*> {};

TEST_P(EachOptimizerTest, GivesTheBitsOfAnUnshardedRun) {
  for (const int ranks : {1, 2, 3, 4}) ExpectAsUnsharded(ranks, {.optimizer = GetParam()});
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EachOptimizerTest,
                         ::testing::Values("sgd", "adam", "adamw", "rmsprop", "adagrad"));

TEST(ZeroOptimizerTest, GivesTheSameBitsWithEveryWayOfMakingGradients) {
  for (const int ranks : {1, 2, 3, 4}) {
    ExpectAsUnsharded(ranks, {.ddp = {.gradient_as_bucket_view = true}, .clip = true});
    // 3 ranks have 4 rows each.
    for (const bool no_sync : {true, false}) {
      ExpectAsUnsharded(ranks,
                        {.micro_batches = ranks == 4 ? 3 : 2, .no_sync = no_sync, .clip = true});
    }
    ExpectAsUnsharded(ranks, {.ddp = {.gradient_as_bucket_view = true}, .fp16 = true, .steps = 5});
    ExpectAsUnsharded(ranks, {.ddp = {.find_unused_parameters = true}, .rare = true});
    ExpectAsUnsharded(ranks, {.bucket_bytes = 1 << 20, .ddp = {.staleness = 1}});
    ExpectAsUnsharded(ranks, {.bucket_bytes = 1});
  }
}

TEST(ZeroOptimizerTest, GlooGivesTheSameBitsToo) {
  for (const bool flat : {false, true}) {
    TrainSettings settings;
    settings.ddp.gradient_as_bucket_view = true;
    const Trained unsharded = testing_util::TrainOverGloo(3, flat, settings);
    settings.zero = true;
    ExpectSame(testing_util::TrainOverGloo(3, flat, settings), unsharded);
  }
}

TEST(ZeroOptimizerTest, WholeStateMovesBetweenAnyNumbersOfRanks) {
  const Trained two = TrainOn(2, {.zero = true, .optimizer = "adam", .rare = false});
  EXPECT_TRUE(two.state.tensors.Contains("w1.max_exp_avg_sq"));
  EXPECT_FALSE(two.state.tensors.Contains("b1.max_exp_avg_sq")) << "the other group";
  EXPECT_FALSE(two.state.tensors.Contains("frozen.exp_avg"));
  EXPECT_EQ(two.state.tensors.At("factor.exp_avg").rank(), 0);
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool zero : {false, true}) {
      // Through load and save without a step, and back.
      ExpectSame(TrainOn(ranks, {.zero = zero, .optimizer = "adam", .steps = 0}, two), two);
    }
  }
}

TEST(ZeroOptimizerTest, ResumedTrainingGivesTheBitsOfOneThatNeverStopped) {
  for (const char* optimizer : {"adamw", "sgd"}) {
    const Trained whole = TrainOn(3, {.zero = true, .optimizer = optimizer, .steps = 6});
    const Trained half = TrainOn(3, {.zero = true, .optimizer = optimizer, .steps = 3});
    for (const bool zero : {false, true}) {
      ExpectSame(
          TrainOn(3, {.zero = zero, .optimizer = optimizer, .first_step = 3, .steps = 3}, half),
          whole);
    }
  }
}

// Each rank has a device of its own, and with it statistics of its own.
TEST(ZeroOptimizerTest, MemoryIsThatOfOneNthOfTheState) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const int64_t bucket_bytes : {int64_t{60000}, int64_t{25} << 20}) {
      ValuesOf(ranks, [&](int rank, auto world) {
        const Device device = Cpu(rank);
        const DeviceScope scope(device);
        auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {61, 203, 101, 7}});
        DistributedDataParallel ddp(model, world, {.gradient_as_bucket_view = true});
        auto optimizer = MakeZeroOptimizer<optim::AdamW>(
            ddp, model->NamedParameters(), optim::AdamWOptions(), {.bucket_bytes = bucket_bytes});
        ResetPeakBytes(device);
        for (int step = 0; step < 3; ++step) {
          optimizer->ZeroGrad();
          autograd::Backward(Sum((*model)(Full({4, 61}, 1.0 + rank))));
          optimizer->Step();
        }
        optimizer->Synchronize();
        const double p = 4.0 * static_cast<double>(model->ParameterCount());
        const MemoryStats stats = GetMemoryStats(device);
        // `beside`: what the peak may have above that.
        const auto expect = [&](MemoryCategory category, double bytes, double beside = 0) {
          EXPECT_NEAR(static_cast<double>(stats.current[category]), bytes, 0.05 * bytes)
              << MemoryCategoryName(category) << ", " << ranks << " ranks";
          EXPECT_LE(static_cast<double>(stats.peak[category]), 1.05 * bytes + beside)
              << MemoryCategoryName(category) << ", " << ranks << " ranks";
        };
        expect(MemoryCategory::kParameter, p);
        // A gradient is made before backward puts it into its bucket.
        expect(MemoryCategory::kGradient, p, 4.0 * 203 * 101);
        expect(MemoryCategory::kOptimizer, 2 * p / ranks);
        return Values();
      });
    }
  }
}

TEST(ZeroOptimizerTest, ConsolidationTakesNothingBesideItsResult) {
  ValuesOf(3, [](int rank, auto world) {
    const Device device = Cpu(rank);
    const DeviceScope scope(device);
    auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {61, 203, 101, 7}});
    DistributedDataParallel ddp(model, world);
    auto optimizer =
        MakeZeroOptimizer<optim::AdamW>(ddp, model->NamedParameters(), optim::AdamWOptions());
    autograd::Backward(Sum((*model)(Full({4, 61}, 1.0))));
    optimizer->Step();
    optimizer->Synchronize();
    world->Barrier().Wait();
    ResetPeakBytes(device);
    const int64_t before = GetMemoryStats(device).current_bytes;
    const optim::OptimizerState state = optimizer->ConsolidateState(/*root=*/1);
    const int64_t result = rank == 1 ? 8 * model->ParameterCount() : 0;
    EXPECT_EQ(state.tensors.size(), rank == 1 ? 12u : 0u);
    EXPECT_EQ(state.numbers.size(), rank == 1 ? 6u : 0u);
    EXPECT_NEAR(GetMemoryStats(device).peak_bytes - before, result, 20000)
        << "beside small messages and bookkeeping";
    return Values();
  });
}

TEST(ZeroOptimizerTest, PiecesArePartsOfTheParameters) {
  ValuesOf(3, [](int rank, auto world) {
    auto model = std::make_shared<OddModel>();
    const Tensor before = model->NamedParameters().At("w1");
    DistributedDataParallel ddp(model, world);
    auto optimizer = MakeZeroOptimizer<optim::Sgd>(ddp, model->NamedParameters(),
                                                   optim::SgdOptions{}, {.bucket_bytes = 1 << 20});
    EXPECT_TRUE(model->NamedParameters().At("w1").IsSame(before));
    EXPECT_EQ(optimizer->buckets().size(), 3u) << "float32, frozen, float64";
    EXPECT_THAT(optimizer->buckets()[0].parameters, ElementsAre(0, 1, 3, 4, 5, 7, 8));
    int64_t elements = 0;
    for (const auto& [name, piece] : optimizer->inner().parameters()) {
      EXPECT_EQ(piece.storage(), model->NamedParameters().At(name).storage()) << name;
      elements += piece.numel();
    }
    Tensor all = FromVector<int64_t>({elements}, {1});
    world->AllReduce(all).Wait();
    EXPECT_EQ(all.Item<int64_t>(), model->ParameterCount()) << rank;
    return Values();
  });
}

// After DDP's reductions, one AllGather a bucket, in the order of registration; none for a bucket
// without gradients, for frozen parameters, or on one rank.
TEST(ZeroOptimizerTest, NumberAndOrderOfCollectives) {
  for (const int ranks : {1, 2, 3, 4}) {
    ValuesOf(ranks, [&](int, auto world) {
      auto model = std::make_shared<Weights>(Values{1, 2, 3, 4});
      DistributedDataParallel ddp(model, world, {.find_unused_parameters = true});
      NamedTensors backwards;
      for (size_t i = 4; i-- > 0;) {
        backwards.Insert(model->NamedParameters()[i].first, (*model)[i]);
      }
      // Two parameters fill a bucket.
      auto optimizer = MakeZeroOptimizer<optim::Sgd>(ddp, backwards, optim::SgdOptions{.lr = 1},
                                                     {.bucket_bytes = 60});
      EXPECT_EQ(optimizer->buckets().size(), 2u);
      EXPECT_THAT(optimizer->buckets()[0].parameters, ElementsAre(3, 2)) << "a and b";
      for (int step = 0; step < 3; ++step) {
        const bool all = step != 1;
        optimizer->ZeroGrad();
        autograd::Backward(all ? Sum((*model)[0] + (*model)[1] + (*model)[2] + (*model)[3])
                               : Sum((*model)[2] + (*model)[3]));
        const int64_t before = world->sequence();
        optimizer->Step();
        const int64_t gathers = all ? 2 : 1, question = all ? 0 : 1;
        EXPECT_EQ(world->sequence() - before, ranks == 1 ? 0 : gathers + question) << step;
        optimizer->Synchronize();
        std::vector<std::string> calls;
        for (const auto& call : world->flight_record().calls) {
          if (call.number >= before) calls.push_back(call.ToString());
        }
        if (ranks == 1) continue;
        const std::string gather = "AllGather(float32 x 16)";
        if (all) {
          EXPECT_THAT(calls, ElementsAre(gather, gather));
        } else {
          EXPECT_THAT(calls, ElementsAre("AllGather(uint8 x 4)", gather));
        }
      }
      Values values;
      for (size_t i = 0; i < 4; ++i) values.push_back((*model)[i].template Item<double>());
      EXPECT_THAT(values, ElementsAre(-1, 0, 0, 1));
      return values;
    });
  }
}

}  // namespace
}  // namespace lockstep::strategies
