// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Engine: a module, a loss and one JSON file in DeepSpeed's vocabulary; a step does the rest.
//
//   engine::DeepSpeedConfig config = engine::LoadDeepSpeedConfig("ds_config.json", world->size());
//   engine::Engine engine(model, world, config, {.wrap_policy = WrapByType<models::Gpt2Block>()});
//   for (...) {
//     amp::StepReport report = engine.Step([&](int64_t micro_batch) {
//       return model->Loss(ids[micro_batch], targets[micro_batch]);    // this rank's rows
//     });
//   }
//   NamedTensors weights = engine.ModelState();                          // on rank 0
//
// What the keys become:
//
//   zero_optimization.stage 0     DistributedDataParallel
//                           1     and ZeroOptimizer
//                           2, 3  FullyShardedDataParallel, SHARD_GRAD_OP and FULL_SHARD
//   offload_optimizer, _param     cpu_offload (both move parameters and state; stage 1 with it is
//                                 done as stage 2 is: the same numbers, and fewer bytes)
//   zero_hpz_partition_size       reshard_ranks; nothing where it is all ranks
//   mics_shard_size               a hybrid strategy over groups of so many ranks
//   bf16, fp16                    stages 0 and 1: autocast; 2 and 3: param_dtype, with float32
//                                 parameters kept and stepped; fp16 with a gradient scaler
//   communication_data_type       reduce_dtype (stages 2 and 3), else float32
//   gradient_clipping             the norm over all gradients of all ranks
//   gradient_accumulation_steps   micro-batches of a step
//   optimizer, scheduler          nn/optim
#ifndef LOCKSTEP_STRATEGIES_ENGINE_ENGINE_H_
#define LOCKSTEP_STRATEGIES_ENGINE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/amp/training/training_step.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/engine/deepspeed_config.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::engine {

struct EngineOptions {
  // Units of stages 2 and 3. Null: modules of at least stage3_prefetch_bucket_size elements.
  strategies::WrapPolicy wrap_policy = nullptr;
  // Makes the optimizer where the file has none, or in place of the file's: of this rank's
  // parameters (stage 1: pieces), which have the module's names, by groups.
  std::function<std::unique_ptr<optim::Optimizer>(const std::vector<NamedTensors>& groups)>
      make_optimizer = nullptr;
  // The group, from 0, of the parameter of a name, for make_optimizer. Null: all are in one.
  std::function<size_t(const std::string& name)> group_of = nullptr;
};

// Not thread-safe.
class Engine {
 public:
  // Every rank of `world` calls it with the same settings. Throws InvalidArgument (null, a config
  // for another number of ranks, neither an optimizer in the file nor a function), Unimplemented
  // (settings that exclude each other here, with what to use) and what the strategies throw.
  Engine(std::shared_ptr<nn::Module> module, std::shared_ptr<comm::Communicator> world,
         const DeepSpeedConfig& config, const EngineOptions& options = {});
  // Waits for what the last step has under way.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // One optimizer step. `loss(i)` is the mean loss of micro-batch i of
  // gradient_accumulation_steps. Throws as amp::TrainingStep::Run.
  amp::StepReport Step(absl::FunctionRef<Tensor(int64_t micro_batch)> loss);

  // Whole states, as of one rank alone: on rank 0, and empty elsewhere; every rank calls them. Of
  // stages 0 and 1 they share storage with the model and the optimizer: write or Clone() them
  // before the next step. Any number of ranks, and any stage, loads them: every rank gives the
  // whole, e.g. from a file. Load() throws InvalidArgument for what does not fit; the optimizer's
  // part is looked at first, and the model has not changed then.
  NamedTensors ModelState();
  optim::OptimizerState OptimizerState();
  void Load(const NamedTensors& model, const optim::OptimizerState& optimizer);

  const std::shared_ptr<nn::Module>& module() const { return module_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  // Null where the file has no scheduler, and no fp16.
  optim::Schedule* schedule() { return schedule_.get(); }
  amp::GradScaler* scaler() { return scaler_.get(); }
  // What Step() puts around the loss, for evaluation: absent where no autocast is.
  std::optional<amp::AutocastOptions> autocast() const;
  // One of them is there.
  strategies::DistributedDataParallel* ddp() { return ddp_ ? &*ddp_ : nullptr; }
  strategies::FullyShardedDataParallel* fsdp() { return fsdp_ ? &*fsdp_ : nullptr; }
  const DeepSpeedConfig& config() const { return config_; }
  // "ZeRO stage 3 on 4 ranks, bfloat16, 2 micro-batches of 8, clip 1".
  std::string Description() const;

 private:
  void Shard(const EngineOptions& options);
  void MakeOptimizer(const EngineOptions& options);
  void MakeTraining();
  void FinishGathers() const;
  std::optional<DType> LowPrecision() const;

  const DeepSpeedConfig config_;
  const std::shared_ptr<nn::Module> module_;
  const std::shared_ptr<comm::Communicator> world_;
  std::optional<strategies::DistributedDataParallel> ddp_;
  std::optional<strategies::FullyShardedDataParallel> fsdp_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::Schedule> schedule_;
  std::unique_ptr<amp::GradScaler> scaler_;
  std::unique_ptr<amp::TrainingStep> training_;
};

}  // namespace lockstep::engine

#endif  // LOCKSTEP_STRATEGIES_ENGINE_ENGINE_H_
