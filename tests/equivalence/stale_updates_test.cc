// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous updates learn as synchronous ones do: GPT on two ranks, by averages of one step ago.
// Ranks are threads.
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tests/equivalence/gpt_training.h"

namespace lockstep::equivalence {
namespace {

// Rows in which each token follows from the one before by a rule, but for one in five, which is
// any; another text on each rank.
class MadeRows {
 public:
  MadeRows(int64_t vocabulary, int rank)
      : vocabulary_(vocabulary), generator_({7, kDataStream, static_cast<uint64_t>(rank) << 32}) {}

  std::pair<Tensor, Tensor> Next(int64_t rows, int64_t block) {
    const std::vector<float> draws =
        RandomUniform({2 * rows * (block + 1)}, 0, 1, {.generator = &generator_}).ToVector<float>();
    std::vector<int64_t> ids, targets;
    size_t at = 0;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i <= block; ++i) {
        if (i < block) ids.push_back(token_);
        if (i > 0) targets.push_back(token_);
        const double any = draws[at++], which = draws[at++];
        token_ = any < 0.2 ? static_cast<int64_t>(which * static_cast<double>(vocabulary_))
                           : (5 * token_ + 3) % vocabulary_;
      }
    }
    return {FromVector<int64_t>(ids, {rows, block}), FromVector<int64_t>(targets, {rows, block})};
  }

 private:
  int64_t vocabulary_;
  int64_t token_ = 0;
  Generator generator_;
};

// The mean loss of both ranks over the last 20 steps.
double Train(const models::Gpt2Config& config, int64_t steps, int64_t staleness) {
  std::vector<double> means(2);
  comm::SpawnThreads(2, [&](comm::RankContext& context) {
    comm::ProcessGroupOptions group_options = context.group_options();
    group_options.timeout = absl::Minutes(2);
    const auto world = comm::InitProcessGroup(group_options);
    ManualSeed(1, world->rank());
    auto model = std::make_shared<models::Gpt2>(config);
    strategies::DistributedDataParallel ddp(model, world, {.staleness = staleness});
    optim::AdamW optimizer(model->NamedParameters(), {.lr = 1e-3});
    MadeRows text(config.vocabulary, world->rank());
    std::vector<double> losses;
    for (int64_t step = 0; step < steps; ++step) {
      const auto [ids, targets] = text.Next(6, config.block);
      optimizer.ZeroGrad();
      const Tensor loss = model->Loss(ids, targets);
      autograd::Backward(loss);
      EXPECT_EQ(ddp.statistics().staleness, staleness);
      optimizer.Step();
      losses.push_back(loss.Item<double>());
    }
    ddp.FinishPending();
    const Tensor mean = FromVector<double>(
        {std::accumulate(losses.end() - 20, losses.end(), 0.0) / 20, losses[0]}, {2});
    world->AllReduce(mean, {.op = comm::ReduceOp::kAverage}).Wait();
    EXPECT_LT(mean.Item<double>({0}), 0.75 * mean.Item<double>({1})) << "it learns";
    means[static_cast<size_t>(context.rank)] = mean.Item<double>({0});
  }).ThrowIfFailed();
  EXPECT_EQ(means[0], means[1]);
  return means[0];
}

TEST(StaleUpdatesTest, LearnAsSynchronousOnes) {
  models::Gpt2Config config = models::Gpt2Preset("nano");
  if (!IsSoakRun()) {
    config.layers = 2;
    config.width = 32;
    config.block = 32;
  }
  const int64_t steps = 300;
  const double synchronous = Train(config, steps, 0);
  const double stale = Train(config, steps, 1);
  RecordProperty("synchronous", std::to_string(synchronous));
  RecordProperty("stale", std::to_string(stale));
  EXPECT_NEAR(stale, synchronous, 0.02 * synchronous);
}

}  // namespace
}  // namespace lockstep::equivalence
