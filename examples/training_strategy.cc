// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/training_strategy.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/examples/adamw_groups.h"
#include "lockstep/examples/gpt2_stages.h"
#include "lockstep/examples/pipeline_strategy.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/strategies/data_parallel/data_parallel.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/hook_setting.h"
#include "lockstep/strategies/engine/engine_support.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharded_files.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/strategies/local_sgd/local_sgd.h"
#include "lockstep/strategies/model_parallel/model_parallel.h"
#include "lockstep/strategies/strategy_state.h"
#include "lockstep/strategies/zero_optimizer/zero_optimizer.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/tensor_tree.h"

namespace lockstep::examples {
namespace {

// What names in a training state begin with.
constexpr absl::string_view kOptimizerPrefix = "optimizer.";
constexpr absl::string_view kDdpPrefix = "ddp.";
constexpr absl::string_view kLocalSgdPrefix = "local_sgd.";

// ---- DataParallel ----

class DataParallelStrategy final : public TrainingStrategy {
 public:
  DataParallelStrategy(const TrainConfig& config, const std::shared_ptr<models::Gpt2>& model)
      : TrainingStrategy(model),
        devices_(config.devices),
        parallel_(model, {.devices = strategies::CpuDevices(static_cast<int>(config.devices))}) {}

  Tensor Loss(const NamedTensors& batch) override {
    const auto on_replica = [this](const TensorTree& rows) {
      return TensorTree(model().Loss(rows.At("ids").tensor(), rows.At("targets").tensor()));
    };
    return parallel_.MeanLoss(on_replica, TensorTree(batch));
  }
  std::string Details() const override { return absl::StrCat(", ", devices_, " devices"); }

 private:
  int64_t devices_;
  strategies::DataParallel parallel_;
};

// ---- ModelParallel ----

// The blocks of a model on --stages devices, cpu:0 and on; null: all of it on one.
std::unique_ptr<strategies::ModelParallel> Spread(const TrainConfig& config,
                                                  const std::shared_ptr<models::Gpt2>& model) {
  if (config.stages == 1) return nullptr;
  const std::vector<Device> devices = strategies::CpuDevices(static_cast<int>(config.stages));
  auto parts = std::make_unique<strategies::ModelParallel>(model, PlaceGpt2(*model, devices));
  // The first device held all of it until now.
  for (const Device device : devices) ResetPeakBytes(device);
  return parts;
}

std::string PlacementText(const strategies::ModelParallel* parts) {
  return parts == nullptr ? "" : absl::StrCat(", parts on ", parts->ToString());
}

class ModelParallelStrategy final : public TrainingStrategy {
 public:
  ModelParallelStrategy(const TrainConfig& config, const std::shared_ptr<models::Gpt2>& model)
      : TrainingStrategy(model), parts_(Spread(config, model)) {}

  std::vector<Device> devices() const override {
    return parts_ == nullptr ? TrainingStrategy::devices() : parts_->devices();
  }
  std::string Details() const override { return PlacementText(parts_.get()); }
  bool shards() const override { return true; }

 private:
  const std::unique_ptr<strategies::ModelParallel> parts_;
};

// ---- DistributedDataParallel, with ZeroOptimizer or LocalSgd or neither ----

class DdpStrategy final : public TrainingStrategy {
 public:
  DdpStrategy(const TrainConfig& config, const std::shared_ptr<models::Gpt2>& model,
              std::shared_ptr<comm::Communicator> world)
      : TrainingStrategy(model),
        config_(config),
        parts_(Spread(config, model)),
        ddp_(model, std::move(world), Options(config)) {
    if (config.local_sgd_period > 0) {
      local_sgd_.emplace(ddp_, strategies::LocalSgdOptions{.period = config.local_sgd_period});
    }
  }

  std::unique_ptr<optim::Optimizer> MakeOptimizer(const AdamWGroups& groups) override {
    if (!shards()) return TrainingStrategy::MakeOptimizer(groups);
    return strategies::MakeZeroOptimizer<optim::AdamW>(ddp_, groups);
  }

  std::shared_ptr<void> StepScope() override {
    return local_sgd_ ? std::shared_ptr<void>(local_sgd_->BackwardScope()) : nullptr;
  }
  std::function<std::shared_ptr<void>()> NoSync() override {
    return [this] { return std::make_shared<strategies::DistributedDataParallel::NoSync>(ddp_); };
  }
  void AfterStep() override {
    if (local_sgd_) local_sgd_->AfterStep();
  }
  void Average() override {
    if (local_sgd_) local_sgd_->Average();
  }
  double exposed_seconds() override { return ddp_.statistics().exposed_seconds; }
  std::vector<Device> devices() const override {
    return parts_ == nullptr ? TrainingStrategy::devices() : parts_->devices();
  }
  std::string Details() const override { return PlacementText(parts_.get()); }
  bool shards() const override { return config_.strategy == "zero1" || parts_ != nullptr; }

  void Save(const optim::Optimizer& optimizer, state::TrainingState& state) override {
    const auto* const zero = dynamic_cast<const strategies::ZeroOptimizer*>(&optimizer);
    const optim::OptimizerState whole =
        zero != nullptr ? zero->ConsolidateState() : optimizer.SaveState();
    state.model = model().StateDict();
    PutOptimizer(whole, state);
    strategies::StrategyState kept;
    kept.InsertAll(ddp_.SaveState(), kDdpPrefix);
    if (local_sgd_) {
      kept.InsertAll(local_sgd_->SaveState(), kLocalSgdPrefix);
      kept.own.InsertAll(whole.tensors, kOptimizerPrefix);  // moments differ between ranks
    }
    state.strategy = kept.shared;
    state.own = kept.own;
  }

  void Load(const state::TrainingState& state, optim::Optimizer& optimizer,
            std::vector<std::string>& begins_anew) override {
    model().LoadStateDict(state.model);
    const TrainConfig saved = TrainConfig::FromState(state);
    strategies::StrategyState kept{state.strategy, {}};
    if (state.ranks == ddp_.group()->size()) {
      kept.own = state.own;
    } else if (state.ranks > 0) {
      begins_anew.push_back(absl::StrCat("what each of ", state.ranks, " ranks had for itself"));
    }
    if (saved.comm_hook == config_.comm_hook && saved.staleness == config_.staleness) {
      ddp_.LoadState(kept.Part(kDdpPrefix));
    } else if (!kept.Part(kDdpPrefix).empty()) {
      begins_anew.push_back(absl::StrCat("what --comm_hook=", saved.comm_hook,
                                         " --staleness=", saved.staleness, " had kept"));
    }
    optim::OptimizerState whole = GetOptimizer(state);
    const strategies::StrategyState local = kept.Part(kLocalSgdPrefix);
    if (local_sgd_ && !local.empty()) {
      local_sgd_->LoadState(local);
      const NamedTensors moments = kept.Part(kOptimizerPrefix).own;
      if (!moments.empty()) whole.tensors = moments;
    }
    optimizer.LoadState(whole);
  }

 private:
  static strategies::DistributedDataParallelOptions Options(const TrainConfig& config) {
    return {.bucket_cap_bytes = config.bucket_cap_mb << 20,
            .find_unused_parameters = config.find_unused_parameters,
            .static_graph = config.static_graph,
            .gradient_as_bucket_view = config.gradient_as_bucket_view,
            .communication_hook = strategies::ParseCommunicationHook(config.comm_hook),
            .staleness = config.staleness};
  }

  const TrainConfig config_;
  const std::unique_ptr<strategies::ModelParallel> parts_;
  strategies::DistributedDataParallel ddp_;
  std::optional<strategies::LocalSgd> local_sgd_;
};

// ---- FullyShardedDataParallel ----

// Since the last call: the time that this rank waited for parameters and gradients.
class ExposedSeconds {
 public:
  double Next(const strategies::FullyShardedDataParallel& fsdp) {
    const strategies::ShardingTotals totals = fsdp.statistics();
    const double all = totals.exposed_gather_seconds + totals.exposed_reduce_seconds;
    return all - std::exchange(before_, all);
  }

 private:
  double before_ = 0;
};

void CallInside(strategies::FullyShardedDataParallel& fsdp, models::Gpt2& model,
                const std::function<void(models::Gpt2&)>& function) {
  fsdp.CallMethod(*fsdp.module(), {}, [&](TensorSpan) -> TensorList {
    function(model);
    return {};
  });
}

class FsdpStrategy final : public TrainingStrategy {
 public:
  FsdpStrategy(const TrainConfig& config, const std::shared_ptr<models::Gpt2>& model,
               const std::shared_ptr<comm::Communicator>& world)
      : TrainingStrategy(model), config_(config) {
    const strategies::FullyShardedDataParallelOptions options = Options(config);
    if (!absl::StartsWith(config.strategy, "hybrid")) {
      fsdp_.emplace(model, world, options);
      return;
    }
    const int replicas = static_cast<int>(config.replicas);
    const comm::DeviceMesh mesh(world,
                                {{"replicate", replicas}, {"shard", world->size() / replicas}});
    fsdp_.emplace(model, mesh, options);
  }

  void Inside(const std::function<void(models::Gpt2&)>& function) override {
    CallInside(*fsdp_, model(), function);
  }
  bool collective_forward() const override { return true; }
  std::function<std::shared_ptr<void>()> NoSync() override {
    return
        [this] { return std::make_shared<strategies::FullyShardedDataParallel::NoSync>(*fsdp_); };
  }
  std::function<Tensor(double)> ClipGradNorm() override {
    return [this](double max_norm) {
      return fsdp_->ClipGradNorm(max_norm, {.error_if_nonfinite = true});
    };
  }
  double exposed_seconds() override { return exposed_.Next(*fsdp_); }
  bool shards() const override { return true; }

  strategies::FullyShardedDataParallel* fsdp() override { return &*fsdp_; }

  std::string Details() const override {
    std::string text = absl::StrCat(", ", fsdp_->unit_names().size(), " units");
    if (config_.cpu_offload) absl::StrAppend(&text, ", states on the host");
    return text;
  }

 private:
  static strategies::FullyShardedDataParallelOptions Options(const TrainConfig& config) {
    using strategies::ShardingStrategy;
    strategies::FullyShardedDataParallelOptions options;
    options.sharding_strategy = config.strategy == "fsdp"           ? ShardingStrategy::kFullShard
                                : config.strategy == "fsdp_grad_op" ? ShardingStrategy::kShardGradOp
                                : config.strategy == "hybrid"       ? ShardingStrategy::kHybridShard
                                : config.strategy == "hybrid_grad_op"
                                    ? ShardingStrategy::kHybridShardGradOp
                                    : ShardingStrategy::kNoShard;
    int64_t elements = 0;
    if (config.wrap == "block") {
      options.wrap_policy = strategies::WrapByType<models::Gpt2Block>();
    } else if (absl::SimpleAtoi(absl::StripPrefix(config.wrap, "size:"), &elements)) {
      options.wrap_policy = strategies::WrapBySize({.min_elements = elements});
    }
    options.reshard_ranks = static_cast<int>(config.reshard_ranks);
    options.backward_prefetch =
        config.backward_prefetch == "pre"    ? strategies::BackwardPrefetch::kPre
        : config.backward_prefetch == "post" ? strategies::BackwardPrefetch::kPost
                                             : strategies::BackwardPrefetch::kNone;
    options.forward_prefetch = config.forward_prefetch;
    if (config.param_dtype == "bf16") options.mixed_precision.param_dtype = DType::kBFloat16;
    if (!config.param_dtype.empty()) {
      options.mixed_precision.reduce_dtype = DType::kFloat32;
      options.mixed_precision.output_dtype = DType::kFloat32;
    }
    options.cpu_offload = config.cpu_offload;
    return options;
  }

  const TrainConfig config_;
  std::optional<strategies::FullyShardedDataParallel> fsdp_;
  ExposedSeconds exposed_;
};

// ---- A file in DeepSpeed's vocabulary ----

class EngineStrategy final : public TrainingStrategy {
 public:
  EngineStrategy(const TrainConfig& config, const std::shared_ptr<models::Gpt2>& model,
                 const std::shared_ptr<comm::Communicator>& world)
      : TrainingStrategy(model),
        lr_(config.lr),
        engine_(model, world, config.EngineConfig(), Options(config, *model)) {}

  engine::Engine* engine() override { return &engine_; }
  strategies::FullyShardedDataParallel* fsdp() override { return engine_.fsdp(); }
  bool collective_forward() const override { return engine::ShardsGradients(engine_.config()); }
  double exposed_seconds() override {
    if (engine_.fsdp() != nullptr) return exposed_.Next(*engine_.fsdp());
    return engine_.ddp()->statistics().exposed_seconds;
  }
  void Inside(const std::function<void(models::Gpt2&)>& function) override {
    if (engine_.fsdp() == nullptr) return function(model());
    CallInside(*engine_.fsdp(), model(), function);
  }
  bool shards() const override { return engine_.config().zero.stage >= 1; }
  void Save(const optim::Optimizer& /*optimizer*/, state::TrainingState& state) override {
    state.model = engine_.ModelState();
    PutOptimizer(engine_.OptimizerState(), state);
  }
  void Load(const state::TrainingState& state, optim::Optimizer& /*optimizer*/,
            std::vector<std::string>& begins_anew) override {
    if (!state.strategy.empty() || state.ranks > 0) {
      begins_anew.push_back("what the strategy before kept for itself");
    }
    engine_.Load(state.model, GetOptimizer(state));
  }
  std::string Details() const override {
    return absl::StrCat(": ", engine_.Description(),
                        engine_.config().optimizer ? "" : absl::StrCat(", AdamW ", lr_));
  }

 private:
  static engine::EngineOptions Options(const TrainConfig& config, const models::Gpt2& model) {
    engine::EngineOptions options{.wrap_policy = strategies::WrapByType<models::Gpt2Block>()};
    if (config.EngineConfig().optimizer.has_value()) return options;
    // DeepSpeed's client gives the optimizer that the file leaves out.
    options.group_of = [matrices = NamesOfMatrices(model)](const std::string& name) {
      return matrices.count(name) > 0 ? 0 : 1;
    };
    options.make_optimizer = [lr = config.lr](const std::vector<NamedTensors>& groups) {
      return std::make_unique<optim::AdamW>(MakeAdamWGroups(groups.at(0), groups.at(1), lr));
    };
    return options;
  }

  const double lr_;
  engine::Engine engine_;
  ExposedSeconds exposed_;
};

}  // namespace

// ---- One rank ----

std::unique_ptr<optim::Optimizer> TrainingStrategy::MakeOptimizer(const AdamWGroups& groups) {
  return std::make_unique<optim::AdamW>(groups);
}

Tensor TrainingStrategy::Loss(const NamedTensors& batch) {
  return model().Loss(batch.At("ids"), batch.At("targets"));
}

Tensor TrainingStrategy::ForwardBackward(const NamedTensors& /*batch*/,
                                         const amp::TrainingStep::ScaleLoss& /*scale*/) {
  throw InternalError("TrainingStrategy: this one does not run backward by itself");
}

void TrainingStrategy::LoadModel(const state::TensorSource& source) {
  if (fsdp() != nullptr) {
    strategies::LoadFullState(*fsdp(), source);
  } else {
    model().LoadStateDict(state::LoadAll(source));
  }
}

void TrainingStrategy::LoadByName(const state::TensorSource& /*model*/,
                                  const state::TensorSource& /*moments*/,
                                  const state::TrainingState& /*state*/,
                                  optim::Optimizer& /*optimizer*/) {
  throw InternalError("TrainingStrategy: this one loads whole states");
}

void TrainingStrategy::Save(const optim::Optimizer& optimizer, state::TrainingState& state) {
  state.model = model().StateDict();
  PutOptimizer(optimizer.SaveState(), state);
}

void TrainingStrategy::Load(const state::TrainingState& state, optim::Optimizer& optimizer,
                            std::vector<std::string>& begins_anew) {
  if (!state.strategy.empty() || state.ranks > 0) {
    begins_anew.push_back("what the strategy before kept for itself");
  }
  model().LoadStateDict(state.model);
  optimizer.LoadState(GetOptimizer(state));
}

void TrainingStrategy::PutOptimizer(const optim::OptimizerState& optimizer,
                                    state::TrainingState& state) {
  state.optimizer = optimizer.tensors;
  for (const auto& [name, number] : optimizer.numbers) {
    state.Set(absl::StrCat(kOptimizerPrefix, name), number);
  }
}

optim::OptimizerState TrainingStrategy::GetOptimizer(const state::TrainingState& state) {
  optim::OptimizerState optimizer;
  optimizer.tensors = state.optimizer;
  for (const auto& [name, value] : state.values) {
    if (absl::StartsWith(name, kOptimizerPrefix)) {
      optimizer.numbers[name.substr(kOptimizerPrefix.size())] = state.Integer(name);
    }
  }
  return optimizer;
}

std::unique_ptr<TrainingStrategy> MakeTrainingStrategy(const TrainConfig& config,
                                                       std::shared_ptr<models::Gpt2> model,
                                                       std::shared_ptr<comm::Communicator> world) {
  if (config.strategy == "config") {
    return std::make_unique<EngineStrategy>(config, model, world);
  }
  if (config.HasDdp()) return std::make_unique<DdpStrategy>(config, model, std::move(world));
  if (config.HasFsdp()) return std::make_unique<FsdpStrategy>(config, model, world);
  if (config.strategy == "dp") return std::make_unique<DataParallelStrategy>(config, model);
  if (config.strategy == "model_parallel") {
    return std::make_unique<ModelParallelStrategy>(config, model);
  }
  if (config.strategy == "pipeline") return MakePipelineStrategy(config, model, world);
  return std::make_unique<TrainingStrategy>(std::move(model));
}

}  // namespace lockstep::examples
