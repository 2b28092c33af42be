// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/subgroups.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/strategies/claim_gradient.h"
#include "lockstep/strategies/claim_sharding.h"
#include "lockstep/strategies/fully_sharded_data_parallel/unit_plan.h"
#include "lockstep/strategies/fully_sharded_data_parallel/unit_settings.h"
#include "lockstep/strategies/lost_parameter.h"
#include "lockstep/strategies/parameter_sync.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

using Options = FullyShardedDataParallelOptions;

constexpr char kName[] = "FullyShardedDataParallel";

void CheckDType(const char* field, std::optional<DType> dtype) {
  if (!dtype.has_value() || IsFloatingPoint(*dtype)) return;
  throw InvalidArgumentError(absl::StrCat(kName, ": mixed_precision.", field, " is ",
                                          DTypeName(*dtype), "; give a floating-point dtype"));
}

void CheckOptions(const Options& options) {
  CheckDType("param_dtype", options.mixed_precision.param_dtype);
  CheckDType("reduce_dtype", options.mixed_precision.reduce_dtype);
  CheckDType("buffer_dtype", options.mixed_precision.buffer_dtype);
  CheckDType("output_dtype", options.mixed_precision.output_dtype);
  if (options.max_gathers_in_flight < 1) {
    throw InvalidArgumentError(absl::StrCat(kName, ": max_gathers_in_flight is ",
                                            options.max_gathers_in_flight, "; give at least 1"));
  }
  if (options.compute_device &&
      (*options.compute_device == kMeta || *options.compute_device == kHost)) {
    throw InvalidArgumentError(
        absl::StrCat(kName, ": compute_device is ", ToString(*options.compute_device),
                     ", where nothing is computed; give a cpu or cuda device"));
  }
  const double factor = options.gradient_divide_factor.value_or(1);
  if (!(factor > 0) || !std::isfinite(factor)) {
    throw InvalidArgumentError(
        absl::StrCat(kName, ": gradient_divide_factor is ", factor, "; give a positive number"));
  }
  if (options.communication_hook && options.gradient_divide_factor) {
    throw InvalidArgumentError(absl::StrCat(
        kName, ": gradient_divide_factor is ", factor,
        " beside a communication_hook, which makes the averages by itself; divide in the hook"));
  }
  if (options.cpu_offload && options.sharding_strategy == ShardingStrategy::kNoShard) {
    throw UnimplementedError(
        absl::StrCat(kName,
                     ": cpu_offload does not go with kNoShard, which has nothing to gather; use "
                     "kFullShard or kShardGradOp"));
  }
}

// What `group` and `mesh` (may be null) mean for the strategy. Collective.
ShardingGroups MakeGroups(const Options& options, std::shared_ptr<comm::Communicator> world,
                          const comm::DeviceMesh* mesh) {
  ShardingGroups groups;
  groups.world = std::move(world);
  if (IsHybrid(options.sharding_strategy)) {
    if (mesh == nullptr) {
      throw InvalidArgumentError(absl::StrCat(
          kName,
          ": a hybrid strategy wants to know which ranks share and which replicate; give a "
          "comm::DeviceMesh with the dimensions \"replicate\" and \"shard\""));
    }
    groups.shard = mesh->Group("shard");
    groups.replicate = mesh->Group("replicate");
  } else if (options.sharding_strategy == ShardingStrategy::kNoShard) {
    groups.replicate = groups.world;
  } else {
    groups.shard = groups.world;
  }
  if (groups.shard && groups.shard->size() == 1) groups.shard = nullptr;
  if (groups.replicate && groups.replicate->size() == 1) groups.replicate = nullptr;
  const int ranks = groups.shard ? groups.shard->size() : 1;
  const int part = options.reshard_ranks;
  if (part == 0 || part == 1) return groups;
  const bool reshards = options.reshard_after_forward &&
                        (options.sharding_strategy == ShardingStrategy::kFullShard ||
                         options.sharding_strategy == ShardingStrategy::kHybridShard);
  if (part < 0 || part >= ranks || ranks % part != 0 || !reshards) {
    throw InvalidArgumentError(
        absl::StrCat(kName, ": reshard_ranks is ", part, " where ", ranks, " ranks share",
                     reshards ? "" : " and nothing is let go after forward",
                     "; give a proper divisor of their number, with kFullShard or kHybridShard and "
                     "reshard_after_forward"));
  }
  groups.reshard = comm::Split(*groups.shard, groups.shard->rank() / part);
  return groups;
}

std::shared_ptr<comm::Communicator> WorldOf(const Options& options, const comm::DeviceMesh& mesh) {
  const size_t dimensions = mesh.dimensions().size();
  mesh.Group("shard");  // throws where there is none
  if (IsHybrid(options.sharding_strategy)) mesh.Group("replicate");
  if (dimensions != (IsHybrid(options.sharding_strategy) ? 2 : 1)) {
    throw InvalidArgumentError(absl::StrCat(
        kName, ": the mesh is ", mesh.ToString(),
        "; hybrid strategies want {replicate, shard}, the others {shard}: make a mesh of the ranks "
        "of one such part"));
  }
  return mesh.world();
}

// Of the options those by which ranks communicate.
std::vector<std::string> SharedSettings(const Options& options) {
  const auto dtype = [](const std::optional<DType>& value) {
    return value.has_value() ? DTypeName(*value) : absl::string_view("none");
  };
  return {
      absl::StrCat("sharding_strategy=", static_cast<int>(options.sharding_strategy)),
      absl::StrCat("reshard_after_forward=", options.reshard_after_forward ? "true" : "false"),
      absl::StrCat("reshard_ranks=", options.reshard_ranks),
      absl::StrCat("mixed_precision.param_dtype=", dtype(options.mixed_precision.param_dtype)),
      absl::StrCat("mixed_precision.reduce_dtype=", dtype(options.mixed_precision.reduce_dtype)),
      absl::StrCat("gradient_divide_factor=", options.gradient_divide_factor.value_or(0)),
      absl::StrCat("communication_hook=", options.communication_hook ? "given" : "none"),
      absl::StrCat("optimizer_in_backward=",
                   options.optimizer_in_backward != nullptr ? "given" : "none")};
}

}  // namespace

FullyShardedDataParallel::FullyShardedDataParallel(std::shared_ptr<nn::Module> module,
                                                   std::shared_ptr<comm::Communicator> group,
                                                   const Options& options)
    : module_(std::move(module)) {
  if (!module_ || !group) {
    throw InvalidArgumentError(
        absl::StrCat(kName, ": the ", module_ ? "process group" : "module", " is null"));
  }
  CheckOptions(options);
  groups_ = MakeGroups(options, std::move(group), nullptr);
  Shard(options);
}

FullyShardedDataParallel::FullyShardedDataParallel(std::shared_ptr<nn::Module> module,
                                                   const comm::DeviceMesh& mesh,
                                                   const Options& options)
    : module_(std::move(module)) {
  if (!module_) throw InvalidArgumentError(absl::StrCat(kName, ": the module is null"));
  CheckOptions(options);
  groups_ = MakeGroups(options, WorldOf(options, mesh), &mesh);
  Shard(options);
}

FullyShardedDataParallel::~FullyShardedDataParallel() = default;

// Throws for parameters that another strategy has, or has taken apart. Those that are ignored are
// nobody's business here unless they get rank 0's values.
void FullyShardedDataParallel::CheckFree(const Options& options,
                                         const std::vector<UnitPlan>& plans) const {
  NamedTensors sharded;
  for (const UnitPlan& plan : plans) {
    for (const FlatPlan& flat : plan.flats) sharded.InsertAll(flat.parameters);
  }
  const NamedTensors touched = options.sync_module_states ? module_->NamedParameters() : sharded;
  CheckNotLost(kName, touched);
  CheckUnclaimed(kName, sharded);
  CheckUnsharded(kName, touched);
}

void FullyShardedDataParallel::Shard(const Options& options) {
  comm::Communicator& world = *groups_.world;
  NamedTensors all = module_->NamedParameters();
  all.InsertAll(module_->NamedBuffers());
  // Before checks of this rank alone: ranks that agree fail those together.
  if (options.sync_module_states) {
    VerifySameTensors(kName, all, world, SharedSettings(options));
  }
  std::vector<UnitPlan> plans = PlanUnits(*module_, options);
  CheckFree(options, plans);  // before anything changes
  NamedTensors whole;         // what is not sharded
  whole.InsertAll(module_->NamedBuffers());
  absl::flat_hash_set<const TensorImpl*> sharded;
  for (const UnitPlan& plan : plans) {
    for (const FlatPlan& flat : plan.flats) {
      for (const auto& [name, parameter] : flat.parameters) sharded.insert(&parameter.impl());
    }
  }
  for (const auto& [name, parameter] : module_->NamedParameters()) {
    if (sharded.count(&parameter.impl()) == 0) whole.Insert(name, parameter);
  }
  const Device device = options.compute_device.value_or(CurrentDevice());
  for (const auto& [name, tensor] : whole) {
    if (tensor.device() == kMeta) tensor.SetData(nn::MaterializeTensor(tensor, device));
  }
  if (options.sync_module_states) BroadcastTensors(whole, world);
  if (options.mixed_precision.buffer_dtype) {
    for (const auto& [name, buffer] : module_->NamedBuffers()) {
      if (IsFloatingPoint(buffer.dtype())) {
        buffer.SetData(To(buffer, *options.mixed_precision.buffer_dtype));
      }
    }
  }
  runtime_ = std::make_shared<ShardingRuntime>(
      std::move(plans), options, groups_, device, [&](const Tensor& parameter) {
        Tensor value = parameter.device() == kMeta ? nn::MaterializeTensor(parameter, device)
                                                   : Contiguous(parameter);
        if (options.sync_module_states && world.size() > 1) world.Broadcast(value).Wait();
        return value;
      });
  runtime_->InstallHooks();
}

// ---- Accumulation ----

FullyShardedDataParallel::NoSync::NoSync(FullyShardedDataParallel& fsdp) : runtime_(fsdp.runtime_) {
  runtime_->CheckWrapped("NoSync");
  runtime_->ChangeNoSyncDepth(1);
}
FullyShardedDataParallel::NoSync::~NoSync() { runtime_->ChangeNoSyncDepth(-1); }

FullyShardedDataParallel::NoAllReduce::NoAllReduce(FullyShardedDataParallel& fsdp)
    : runtime_(fsdp.runtime_) {
  runtime_->CheckWrapped("NoAllReduce");
  runtime_->ChangeNoAllReduceDepth(1);
}
FullyShardedDataParallel::NoAllReduce::~NoAllReduce() { runtime_->ChangeNoAllReduceDepth(-1); }

void FullyShardedDataParallel::DropAccumulated() {
  runtime_->CheckWrapped("DropAccumulated");
  runtime_->DropAccumulated();
}

void FullyShardedDataParallel::Unwrap() { runtime_->Unwrap(); }

// ---- Units ----

size_t FullyShardedDataParallel::UnitOf(const char* call, const nn::Module& module) const {
  runtime_->CheckWrapped(call);
  const auto& units = runtime_->units();
  for (size_t i = 0; i < units.size(); ++i) {
    if (units[i].module == &module) return i;
  }
  throw InvalidArgumentError(absl::StrCat(kName, ": ", call, ": this ", module.Description(),
                                          " is no unit; the units are \"",
                                          absl::StrJoin(unit_names(), "\", \""), "\""));
}

TensorList FullyShardedDataParallel::CallMethod(nn::Module& module, TensorList inputs,
                                                const nn::ForwardFunction& method) {
  return runtime_->Call(UnitOf("CallMethod", module), std::move(inputs), method);
}

void FullyShardedDataParallel::Unshard(nn::Module& module) {
  runtime_->Unshard(UnitOf("Unshard", module));
}
void FullyShardedDataParallel::Reshard(nn::Module& module) {
  runtime_->Reshard(UnitOf("Reshard", module));
}

std::vector<std::string> FullyShardedDataParallel::unit_names() const {
  runtime_->CheckWrapped("unit_names");
  std::vector<std::string> names;
  for (const auto& unit : runtime_->units()) names.push_back(unit.name);
  return names;
}

std::vector<std::string> FullyShardedDataParallel::execution_order() const {
  runtime_->CheckWrapped("execution_order");
  std::vector<std::string> names;
  for (const size_t unit : runtime_->order().recorded()) {
    names.push_back(runtime_->units()[unit].name);
  }
  return names;
}

std::vector<FullyShardedDataParallel::Piece> FullyShardedDataParallel::Pieces() const {
  runtime_->CheckWrapped("Pieces");
  std::vector<Piece> pieces;
  for (const auto& unit : runtime_->units()) {
    for (const auto& flat : unit.flats) {
      for (size_t i = 0; i < flat->parameters().size(); ++i) {
        const auto& [name, parameter] = flat->parameters()[i];
        const FlatLayout::Piece piece = flat->piece(i);
        pieces.push_back({name, flat->full_shape(i), piece.begin, piece.end, parameter});
      }
    }
  }
  return pieces;
}

// ---- Clipping ----

Tensor FullyShardedDataParallel::ClipGradNorm(double max_norm,
                                              const optim::ClipGradNormOptions& options) {
  const std::string call = absl::StrCat(kName, ": ClipGradNorm");
  optim::CheckMaxNorm(call, max_norm);
  runtime_->CheckIdle("ClipGradNorm");
  const autograd::NoGradScope no_grad;
  std::map<std::string, std::vector<Tensor>> gradients;  // that are sharded, by device
  std::vector<Tensor> clipped;
  absl::flat_hash_set<const TensorImpl*> sharded;
  const bool two = options.kind == NormKind::kTwo;
  const auto norm_of = [&](const std::vector<Tensor>& tensors) {
    return tensors.empty() ? 0.0 : GlobalNorm(tensors, options.kind).Item<double>();
  };
  // A NaN stays one.
  const auto add = [&](double a, double b) {
    return two ? a + b * b : (std::isnan(a) || a > b ? a : b);
  };
  for (const auto& unit : runtime_->units()) {
    for (const auto& flat : unit.flats) {
      for (const auto& [name, parameter] : flat->parameters()) {
        sharded.insert(&parameter.impl());
        clipped.push_back(parameter);
        const Tensor gradient = autograd::Grad(parameter);
        if (gradient.defined()) gradients[ToString(gradient.device())].push_back(gradient);
      }
    }
  }
  double total = 0;
  for (const auto& [device, tensors] : gradients) total = add(total, norm_of(tensors));
  if (groups_.shard) {
    const Tensor sum = FromVector<double>({total}, {1}, {.device = Cpu()});
    groups_.shard->AllReduce(sum, {.op = two ? comm::ReduceOp::kSum : comm::ReduceOp::kMax}).Wait();
    total = sum.Item<double>();
  }
  // Parameters that are not sharded count once.
  for (const auto& [name, parameter] : module_->NamedParameters()) {
    if (sharded.count(&parameter.impl()) > 0) continue;
    const Tensor gradient = autograd::Grad(parameter);
    if (!gradient.defined()) continue;
    total = add(total, norm_of({gradient}));
    clipped.push_back(parameter);
  }
  const double norm = two ? std::sqrt(total) : total;
  const Tensor result = Full({}, norm, {.dtype = DType::kFloat32, .device = Cpu()});
  optim::ClipGradsWithNorm(call, clipped, result, max_norm, options);
  return result;
}

}  // namespace lockstep::strategies
