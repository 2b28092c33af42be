// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Steps of sharded training against DistributedDataParallel's, bitwise, and what they communicate.
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies {
namespace {

using testing_util::Rows;
using testing_util::ValuesOf;
using Options = FullyShardedDataParallelOptions;

constexpr int64_t kRows = 12;

std::shared_ptr<models::Mlp> MakeMlp(int rank) {
  ManualSeed(static_cast<uint64_t>(100 + rank));  // the ranks start apart
  return std::make_shared<models::Mlp>(
      models::MlpConfig{.sizes = {3, 7, 5, 2}, .activation = models::MlpActivation::kTanh});
}

Tensor LossOf(models::Mlp& model, int rank, int64_t step, int64_t share) {
  const NamedTensors batch = Rows(step * kRows + rank * share, share);
  return MseLoss(model(batch.At("inputs")), batch.At("targets"));
}

std::vector<double> FullParameters(FullyShardedDataParallel& fsdp, const nn::Module& module) {
  const NamedTensors state = fsdp.FullStateDict(/*rank0_only=*/false);
  std::vector<double> values;
  for (const auto& [name, parameter] : module.NamedParameters()) {
    for (const double value : state.At(name).ToVector<double>()) values.push_back(value);
  }
  return values;
}

std::vector<double> TrainSharded(int rank, const std::shared_ptr<comm::Communicator>& world,
                                 const Options& options, int64_t micro_batches = 1) {
  auto model = MakeMlp(rank);
  FullyShardedDataParallel fsdp(model, world, options);
  optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
  std::vector<double> result;
  for (int64_t step = 0; step < 3; ++step) {
    optimizer.ZeroGrad();
    for (int64_t i = 0; i < micro_batches; ++i) {
      std::optional<FullyShardedDataParallel::NoSync> no_sync;
      if (i + 1 < micro_batches) no_sync.emplace(fsdp);
      Tensor loss = LossOf(*model, rank, 2 * step + i, kRows / world->size());
      autograd::Backward(loss);
      result.push_back(loss.Item<double>());
    }
    optimizer.Step();
  }
  const std::vector<double> parameters = FullParameters(fsdp, *model);
  result.insert(result.end(), parameters.begin(), parameters.end());
  return result;
}

std::vector<double> TrainReplicated(int rank, const std::shared_ptr<comm::Communicator>& world,
                                    int64_t micro_batches = 1) {
  auto model = MakeMlp(rank);
  DistributedDataParallel ddp(model, world);
  optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
  std::vector<double> result;
  for (int64_t step = 0; step < 3; ++step) {
    optimizer.ZeroGrad();
    for (int64_t i = 0; i < micro_batches; ++i) {
      std::optional<DistributedDataParallel::NoSync> no_sync;
      if (i + 1 < micro_batches) no_sync.emplace(ddp);
      Tensor loss = LossOf(*model, rank, 2 * step + i, kRows / world->size());
      autograd::Backward(loss);
      result.push_back(loss.Item<double>());
    }
    optimizer.Step();
  }
  for (const double value : testing_util::AllParameters(*model)) result.push_back(value);
  return result;
}

Options ByLinear(Options options = {}) {
  options.wrap_policy = WrapByType<nn::Linear>();
  return options;
}

class StrategyTest : public ::testing::TestWithParam<std::tuple<int, ShardingStrategy, bool>> {};

TEST_P(StrategyTest, TrainsBitwiseAsDistributedDataParallel) {
  const auto [ranks, strategy, offload] = GetParam();
  if (offload && strategy == ShardingStrategy::kNoShard) GTEST_SKIP() << "refused";
  Options options;
  options.sharding_strategy = strategy;
  options.cpu_offload = offload;
  for (const int64_t micro_batches : {1, 2}) {
    const auto wanted = ValuesOf(
        ranks, [&](int rank, auto world) { return TrainReplicated(rank, world, micro_batches); },
        false);
    EXPECT_EQ(wanted, ValuesOf(
                          ranks,
                          [&](int rank, auto world) {
                            return TrainSharded(rank, world, ByLinear(options), micro_batches);
                          },
                          false));
    EXPECT_EQ(wanted, ValuesOf(
                          ranks,
                          [&](int rank, auto world) {
                            return TrainSharded(rank, world, options, micro_batches);
                          },
                          false));
  }
}

INSTANTIATE_TEST_SUITE_P(All, StrategyTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(ShardingStrategy::kFullShard,
                                                              ShardingStrategy::kShardGradOp,
                                                              ShardingStrategy::kNoShard),
                                            ::testing::Bool()));

}  // namespace
}  // namespace lockstep::strategies
