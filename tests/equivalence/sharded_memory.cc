// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tests/equivalence/sharded_memory.h"

#include <memory>
#include <mutex>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::equivalence {
namespace {

std::shared_ptr<models::Gpt2> MakeModel(const MemoryRun& run) {
  ManualSeed(7);
  if (!run.deferred) return std::make_shared<models::Gpt2>(run.config);
  const nn::DeferredInitScope deferred;
  return std::make_shared<models::Gpt2>(run.config);
}

// What keeps the model's strategy alive.
std::shared_ptr<void> Wrap(const MemoryRun& run, const std::shared_ptr<models::Gpt2>& model,
                           const std::shared_ptr<comm::Communicator>& world) {
  if (!absl::StartsWith(run.strategy, "fsdp")) {
    return std::make_shared<strategies::DistributedDataParallel>(
        model, world, strategies::DistributedDataParallelOptions{.gradient_as_bucket_view = true});
  }
  strategies::FullyShardedDataParallelOptions options;
  options.wrap_policy = strategies::WrapByType<models::Gpt2Block>();
  options.cpu_offload = run.strategy == "fsdp_offload";
  if (run.strategy == "fsdp_grad_op") {
    options.sharding_strategy = strategies::ShardingStrategy::kShardGradOp;
  }
  return std::make_shared<strategies::FullyShardedDataParallel>(model, world, options);
}

RankMemory TrainOnRank(const MemoryRun& run, const std::shared_ptr<comm::Communicator>& world) {
  const Device device = Cpu(world->rank());
  const DeviceScope on_device(device);
  SetIntraOpThreads(1);
  ResetPeakBytes(device);
  RankMemory result;
  const std::shared_ptr<models::Gpt2> model = MakeModel(run);
  const std::shared_ptr<void> strategy = Wrap(run, model, world);
  result.construction_peak_bytes = GetMemoryStats(device).peak_bytes;
  if (run.checkpointed) {
    checkpoint::ApplyCheckpointing(*model, {.choose = checkpoint::OfType<models::Gpt2Block>()});
  }
  optim::AdamW optimizer(model->NamedParameters(), {.lr = 1e-3});
  ResetPeakBytes(device);
  const Tensor ids =
      To(RandomUniform({run.rows, run.config.block}, 0, static_cast<double>(run.config.vocabulary)),
         DType::kInt64);
  for (int step = 0; step < run.steps; ++step) {
    optimizer.ZeroGrad();
    const Tensor loss = model->Loss(ids, ids);
    autograd::Backward(loss);
    if (step + 1 == run.steps) {
      const MemoryStats now = GetMemoryStats(device);
      result.parameter_bytes = now.current[MemoryCategory::kParameter];
      result.gradient_bytes = now.current[MemoryCategory::kGradient];
      result.optimizer_bytes = now.current[MemoryCategory::kOptimizer];
      result.loss = loss.Item<double>();
      world->Barrier().Wait();
      result.host_bytes = GetMemoryStats(kHost).current_bytes / world->size();
      world->Barrier().Wait();
    }
    optimizer.Step();
  }
  result.peaks = GetMemoryStats(device);
  return result;
}

}  // namespace

std::vector<RankMemory> TrainAndMeasure(const MemoryRun& run) {
  std::vector<RankMemory> results(static_cast<size_t>(run.ranks));
  for (int rank = 0; rank < run.ranks; ++rank) SetCapacityLimit(Cpu(rank), run.capacity_bytes);
  std::mutex mutex;
  std::optional<Error> failure;
  comm::SpawnThreads(run.ranks, [&](comm::RankContext& context) {
    comm::ProcessGroupOptions options = context.group_options();
    options.timeout = absl::Seconds(300);
    try {
      results[static_cast<size_t>(context.rank)] =
          TrainOnRank(run, comm::InitProcessGroup(options));
    } catch (const Error& error) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!failure) failure = error;
    }
  }).ThrowIfFailed();
  for (int rank = 0; rank < run.ranks; ++rank) SetCapacityLimit(Cpu(rank), std::nullopt);
  if (failure) throw *failure;
  return results;
}

UnitBytes UnitBytesOf(const models::Gpt2Config& config) {
  const DeviceScope on_meta(kMeta);
  models::Gpt2 model(config);
  UnitBytes bytes;
  bytes.all = 4 * model.ParameterCount();
  bytes.block = 4 * model.transformer()->h()[0]->ParameterCount();
  bytes.root = bytes.all - config.layers * bytes.block;
  return bytes;
}

double FormulaBytes(const std::string& strategy, int64_t parameter_bytes, int ranks) {
  const double p = static_cast<double>(parameter_bytes);  // 4P of the paper
  const double part = p / ranks;
  if (strategy == "ddp") return 4 * p;
  if (strategy == "fsdp_grad_op") return p + 3 * part;
  return 4 * part;
}

}  // namespace lockstep::equivalence
