// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/nn/optim/adagrad.h"
#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/rmsprop.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/engine/engine_support.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/strategies/zero_optimizer/zero_optimizer.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::engine {
namespace {

struct MakeFromOptions {
  const NamedTensors& parameters;
  std::unique_ptr<optim::Optimizer> operator()(const optim::AdamOptions& options) const {
    return std::make_unique<optim::Adam>(parameters, options);
  }
  std::unique_ptr<optim::Optimizer> operator()(const optim::AdamWOptions& options) const {
    return std::make_unique<optim::AdamW>(parameters, options);
  }
  std::unique_ptr<optim::Optimizer> operator()(const optim::SgdOptions& options) const {
    return std::make_unique<optim::Sgd>(parameters, options);
  }
  std::unique_ptr<optim::Optimizer> operator()(const optim::AdagradOptions& options) const {
    return std::make_unique<optim::Adagrad>(parameters, options);
  }
  std::unique_ptr<optim::Optimizer> operator()(const optim::RmspropOptions& options) const {
    return std::make_unique<optim::Rmsprop>(parameters, options);
  }
};

void CheckConfig(const DeepSpeedConfig& config, int ranks) {
  if (config.ranks != ranks) {
    throw InvalidArgumentError(absl::StrCat("Engine: the configuration is for ", config.ranks,
                                            " ranks, and the group has ", ranks,
                                            "; load it with the group's size"));
  }
  try {
    CheckSupported(config);
  } catch (const Error& error) {
    throw error.WithContext("Engine");
  }
}

}  // namespace

Engine::Engine(std::shared_ptr<nn::Module> module, std::shared_ptr<comm::Communicator> world,
               const DeepSpeedConfig& config, const EngineOptions& options)
    : config_(config), module_(std::move(module)), world_(std::move(world)) {
  if (!module_ || !world_) {
    throw InvalidArgumentError(
        absl::StrCat("Engine: the ", module_ ? "process group" : "module", " is null"));
  }
  CheckConfig(config_, world_->size());
  Shard(options);
  MakeOptimizer(options);
  MakeTraining();
}

Engine::~Engine() {
  try {
    FinishGathers();
  } catch (const Error&) {
    // The group has failed, and its next call says why.
  }
}

// A rank that ends while the last step's parameters travel would fail the others' gathers.
void Engine::FinishGathers() const {
  const auto* const zero = dynamic_cast<const strategies::ZeroOptimizer*>(optimizer_.get());
  if (zero != nullptr) zero->Synchronize();
}

std::optional<DType> Engine::LowPrecision() const {
  if (config_.bf16_enabled) return DType::kBFloat16;
  if (config_.fp16.enabled) return DType::kFloat16;
  return std::nullopt;
}

void Engine::Shard(const EngineOptions& options) {
  const DeepSpeedZero& zero = config_.zero;
  if (!ShardsGradients(config_)) {
    ddp_.emplace(module_, world_,
                 strategies::DistributedDataParallelOptions{.find_unused_parameters = true,
                                                            .gradient_as_bucket_view = true});
    return;
  }
  strategies::FullyShardedDataParallelOptions sharding;
  sharding.sharding_strategy = zero.stage == 3 ? strategies::ShardingStrategy::kFullShard
                                               : strategies::ShardingStrategy::kShardGradOp;
  sharding.wrap_policy = options.wrap_policy;
  if (!sharding.wrap_policy) {
    sharding.wrap_policy = strategies::WrapBySize(
        {.min_elements = std::max<int64_t>(1, zero.stage3_prefetch_bucket_size)});
  }
  sharding.cpu_offload = Offloads(config_);
  sharding.mixed_precision.param_dtype = LowPrecision();
  if (LowPrecision().has_value()) {
    sharding.mixed_precision.reduce_dtype =
        config_.communication_data_type.value_or(DType::kFloat32);
    sharding.mixed_precision.output_dtype = DType::kFloat32;
  } else {
    sharding.mixed_precision.reduce_dtype = config_.communication_data_type;
  }
  if (zero.zero_hpz_partition_size > 1) {
    sharding.reshard_ranks = static_cast<int>(zero.zero_hpz_partition_size);
  }
  if (zero.mics_shard_size <= 0 || zero.mics_shard_size >= world_->size()) {
    fsdp_.emplace(module_, world_, sharding);
    return;
  }
  const int shard = static_cast<int>(zero.mics_shard_size);
  if (world_->size() % shard != 0) {
    throw InvalidArgumentError(absl::StrCat("Engine: mics_shard_size ", shard,
                                            " does not divide the ", world_->size(), " ranks"));
  }
  sharding.sharding_strategy = strategies::ShardingStrategy::kHybridShard;
  const comm::DeviceMesh mesh(world_, {{"replicate", world_->size() / shard}, {"shard", shard}});
  fsdp_.emplace(module_, mesh, sharding);
}

void Engine::MakeOptimizer(const EngineOptions& options) {
  if (!options.make_optimizer && !config_.optimizer.has_value()) {
    throw InvalidArgumentError(
        "Engine: the configuration has no \"optimizer\"; add one, or give make_optimizer");
  }
  const bool by_file = !options.make_optimizer;
  const NamedTensors all = module_->NamedParameters();
  std::vector<NamedTensors> groups(1);
  for (const auto& [name, parameter] : all) {
    const size_t group = by_file || !options.group_of ? 0 : options.group_of(name);
    if (group >= all.size()) {
      throw InvalidArgumentError(
          absl::StrCat("Engine: group_of(\"", name, "\") is ", group, " of ", all.size(),
                       " parameters; number the groups from 0, without gaps"));
    }
    if (group >= groups.size()) groups.resize(group + 1);
    groups[group].Insert(name, parameter);
  }
  const auto make = [&](const std::vector<NamedTensors>& parameters) {
    return by_file ? std::visit(MakeFromOptions{parameters[0]}, *config_.optimizer)
                   : options.make_optimizer(parameters);
  };
  if (config_.zero.stage == 1 && ddp_) {
    optimizer_ = std::make_unique<strategies::ZeroOptimizer>(*ddp_, groups, make);
  } else {
    optimizer_ = make(groups);
  }
  if (!optimizer_) throw InvalidArgumentError("Engine: make_optimizer returned null");
  if (config_.scheduler.has_value()) {
    schedule_ =
        std::make_unique<optim::Schedule>(optimizer_.get(), MakeSchedule(*config_.scheduler));
  }
}

void Engine::MakeTraining() {
  const DeepSpeedFp16& fp16 = config_.fp16;
  if (fp16.enabled) {
    amp::GradScalerOptions scaling;
    scaling.group = world_;
    const bool fixed = fp16.loss_scale > 0;
    scaling.init_scale =
        fixed ? fp16.loss_scale : std::ldexp(1.0, static_cast<int>(fp16.initial_scale_power));
    scaling.growth_interval = fp16.loss_scale_window;
    scaling.hysteresis = fp16.hysteresis;
    scaling.consecutive_hysteresis = fp16.consecutive_hysteresis;
    scaling.min_scale = fixed ? fp16.loss_scale : fp16.min_loss_scale;
    if (fixed) scaling.max_scale = fp16.loss_scale;
    scaler_ = std::make_unique<amp::GradScaler>(scaling);
  }
  amp::TrainingStepOptions step{.optimizers = {{optimizer_.get(), schedule_.get()}},
                                .module = module_.get(),
                                .scaler = scaler_.get(),
                                .micro_batches = config_.gradient_accumulation_steps,
                                .group = world_};
  if (config_.gradient_clipping > 0) step.clip_norm = config_.gradient_clipping;
  if (ddp_) {
    step.autocast = autocast();
    step.no_sync = [this] {
      return std::make_shared<strategies::DistributedDataParallel::NoSync>(*ddp_);
    };
  } else {
    // Each micro-batch is reduced and added to the part: no rank holds whole gradients.
    if (config_.gradient_clipping > 0) {
      step.clip_grad_norm = [this](double max_norm) {
        return fsdp_->ClipGradNorm(max_norm, {.error_if_nonfinite = true});
      };
    }
  }
  training_ = std::make_unique<amp::TrainingStep>(std::move(step));
}

std::optional<amp::AutocastOptions> Engine::autocast() const {
  if (!ddp_ || !LowPrecision().has_value()) return std::nullopt;
  return amp::AutocastOptions{.dtype = *LowPrecision()};
}

amp::StepReport Engine::Step(absl::FunctionRef<Tensor(int64_t)> loss) {
  return training_->Run(loss);
}

// ---- State ----

NamedTensors Engine::ModelState() {
  if (fsdp_) return fsdp_->FullStateDict();
  FinishGathers();
  return world_->rank() == 0 ? module_->StateDict() : NamedTensors();
}

optim::OptimizerState Engine::OptimizerState() {
  if (fsdp_) return fsdp_->FullOptimizerState(*optimizer_);
  if (const auto* zero = dynamic_cast<const strategies::ZeroOptimizer*>(optimizer_.get())) {
    return zero->ConsolidateState();
  }
  return world_->rank() == 0 ? optimizer_->SaveState() : optim::OptimizerState();
}

void Engine::Load(const NamedTensors& model, const optim::OptimizerState& optimizer) {
  if (fsdp_) {
    fsdp_->LoadFullOptimizerState(*optimizer_, optimizer);
    fsdp_->LoadFullStateDict(model);
  } else {
    optimizer_->LoadState(optimizer);
    module_->LoadStateDict(model);
  }
}

std::string Engine::Description() const {
  std::string text = absl::StrCat("ZeRO stage ", config_.zero.stage, " on ", world_->size(),
                                  world_->size() == 1 ? " rank" : " ranks");
  if (Offloads(config_)) absl::StrAppend(&text, ", states on the host");
  if (LowPrecision().has_value()) absl::StrAppend(&text, ", ", DTypeName(*LowPrecision()));
  absl::StrAppend(&text, ", ", config_.gradient_accumulation_steps, " micro-batches of ",
                  config_.train_micro_batch_size_per_gpu);
  if (config_.gradient_clipping > 0) {
    absl::StrAppend(&text, ", clip ", config_.gradient_clipping);
  }
  return text;
}

}  // namespace lockstep::engine
