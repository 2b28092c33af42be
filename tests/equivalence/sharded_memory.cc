// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tests/equivalence/sharded_memory.h"

#include <algorithm>
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
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/strategies/zero_optimizer/zero_optimizer.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/named_tensors.h"
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
        model, world,
        strategies::DistributedDataParallelOptions{.bucket_cap_bytes = run.bucket_bytes,
                                                   .gradient_as_bucket_view = true});
  }
  strategies::FullyShardedDataParallelOptions options;
  options.wrap_policy = strategies::WrapByType<models::Gpt2Block>();
  options.cpu_offload = run.strategy == "fsdp_offload";
  if (run.strategy == "fsdp_grad_op") {
    options.sharding_strategy = strategies::ShardingStrategy::kShardGradOp;
  }
  return std::make_shared<strategies::FullyShardedDataParallel>(model, world, options);
}

std::unique_ptr<optim::Optimizer> MakeOptimizer(const MemoryRun& run,
                                                const std::shared_ptr<void>& strategy,
                                                const NamedTensors& parameters) {
  const optim::AdamWOptions options{.lr = 1e-3};
  if (run.strategy != "zero1") return std::make_unique<optim::AdamW>(parameters, options);
  return strategies::MakeZeroOptimizer<optim::AdamW>(
      *std::static_pointer_cast<strategies::DistributedDataParallel>(strategy), parameters, options,
      {.bucket_bytes = run.bucket_bytes});
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
  const std::unique_ptr<optim::Optimizer> optimizer =
      MakeOptimizer(run, strategy, model->NamedParameters());
  ResetPeakBytes(device);
  const Tensor ids =
      To(RandomUniform({run.rows, run.config.block}, 0, static_cast<double>(run.config.vocabulary)),
         DType::kInt64);
  for (int step = 0; step < run.steps; ++step) {
    if (step == 1 && run.without_first_step) ResetPeakBytes(device);
    optimizer->ZeroGrad();
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
    optimizer->Step();
  }
  // No rank leaves while parameters travel.
  if (const auto* zero = dynamic_cast<const strategies::ZeroOptimizer*>(optimizer.get())) {
    zero->Synchronize();
  }
  result.peaks = GetMemoryStats(device);
  return result;
}

}  // namespace

int64_t RankMemory::working_bytes() const {
  int64_t bytes = -state_bytes();
  for (const MemoryCategory category :
       {MemoryCategory::kParameter, MemoryCategory::kGradient, MemoryCategory::kOptimizer,
        MemoryCategory::kCommunication}) {
    bytes += peaks.peak[category];
  }
  return bytes;
}

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
  for (const Tensor& parameter : model.Parameters()) {
    bytes.largest = std::max(bytes.largest, 4 * parameter.numel());
  }
  return bytes;
}

double FormulaBytes(const std::string& strategy, int64_t parameter_bytes, int ranks) {
  const double p = static_cast<double>(parameter_bytes);  // 4P of the paper
  const double part = p / ranks;
  if (strategy == "ddp") return 4 * p;
  if (strategy == "zero1") return 2 * p + 2 * part;
  if (strategy == "fsdp_grad_op") return p + 3 * part;
  return 4 * part;
}

}  // namespace lockstep::equivalence
