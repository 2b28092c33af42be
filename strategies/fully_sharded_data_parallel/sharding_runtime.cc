// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Construction and forward; sharding_backward.cc has backward.
#include "lockstep/strategies/fully_sharded_data_parallel/sharding_runtime.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/claim_gradient.h"
#include "lockstep/strategies/claim_sharding.h"
#include "lockstep/strategies/fully_sharded_data_parallel/gradient_division.h"
#include "lockstep/strategies/fully_sharded_data_parallel/unit_settings.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/ops/elementwise.h"

namespace lockstep::strategies {
namespace {

constexpr size_t kRoot = 0;

constexpr char kName[] = "FullyShardedDataParallel";

bool IsFloating(const Tensor& tensor) {
  return tensor.defined() && IsFloatingPoint(tensor.dtype());
}

}  // namespace

// ---- Construction ----

ShardingRuntime::ShardingRuntime(std::vector<UnitPlan> plans,
                                 const FullyShardedDataParallelOptions& options,
                                 const ShardingGroups& groups, Device device,
                                 absl::FunctionRef<Tensor(const Tensor&)> value_of)
    : options_(options), groups_(groups) {
  for (UnitPlan& plan : plans) AddUnit(std::move(plan), device, value_of);
}

ShardingRuntime::~ShardingRuntime() {
  for (nn::HookHandle& hook : module_hooks_) hook.Remove();
  for (autograd::HookHandle& hook : leaf_hooks_) hook.Remove();
}

void ShardingRuntime::AddUnit(UnitPlan plan, Device device,
                              absl::FunctionRef<Tensor(const Tensor&)> value_of) {
  const MixedPrecision& mixed = options_.mixed_precision;
  Unit unit;
  unit.name = plan.name;
  unit.module = plan.module;
  unit.full_precision = plan.full_precision && !plan.flats.empty();
  const bool is_root = units_.empty();
  unit.reshard_after_forward = ReshardsAfterForward(options_, plan, is_root);
  if (!plan.full_precision) {
    unit.input_dtype = plan.options.param_dtype ? plan.options.param_dtype : mixed.param_dtype;
  }
  for (FlatPlan& flat : plan.flats) {
    const FlatSettings of_flat =
        SettingsOf(options_, plan, flat, is_root, /*shares=*/groups_.shard != nullptr);
    FlatParameterOptions settings;
    settings.unit = plan.name;
    settings.compute_device =
        options_.compute_device.value_or(flat.device == kMeta ? device : flat.device);
    settings.offload = options_.cpu_offload;
    settings.param_dtype = of_flat.param_dtype;
    settings.reduce_dtype = of_flat.reduce_dtype;
    settings.keeps_full = of_flat.keeps_full;
    if (plan.full_precision) unit.input_dtype = flat.dtype;
    settings.tag = ++flat_count_;
    settings.hook = options_.communication_hook;
    if (!settings.hook) {
      settings.division = DivideGradients(groups_.world->size(), options_.gradient_divide_factor,
                                          settings.reduce_dtype);
    }
    std::shared_ptr<BufferPool>& buffers = pools_[ToString(settings.compute_device)];
    if (!buffers) buffers = std::make_shared<BufferPool>(groups_.world, settings.compute_device);
    unit.flats.push_back(std::make_unique<FlatParameter>(std::move(flat), settings, groups_,
                                                         buffers, statistics_, value_of));
  }
  units_.push_back(std::move(unit));
}

void ShardingRuntime::InstallHooks() {
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    HookLeaves(unit);
    HookUnit(unit);
  }
}

void ShardingRuntime::HookUnit(size_t unit) {
  // Weak: the module may outlive the strategy.
  const std::weak_ptr<ShardingRuntime> weak = weak_from_this();
  nn::Module& module = *units_[unit].module;
  module_hooks_.push_back(
      module.RegisterForwardPreHook([weak, unit](nn::Module&, TensorList& inputs) {
        if (auto self = weak.lock()) self->BeforeForward(unit, inputs);
      }));
  module_hooks_.push_back(
      module.RegisterForwardHook([weak, unit](nn::Module&, TensorSpan inputs, TensorList& outputs) {
        if (auto self = weak.lock()) self->AfterForward(unit, inputs, outputs);
      }));
  module_hooks_.push_back(module.RegisterForwardExitHook([weak, unit](nn::Module&) {
    if (auto self = weak.lock()) self->LeaveForward(unit);
  }));
}

void ShardingRuntime::HookLeaves(size_t unit) {
  const std::vector<std::unique_ptr<FlatParameter>>& flats = units_[unit].flats;
  for (size_t flat = 0; flat < flats.size(); ++flat) {
    const NamedTensors& parameters = flats[flat]->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      leaf_hooks_.push_back(ClaimSharded(kName, parameters[i].first, parameters[i].second));
      if (!flats[flat]->trainable()) continue;
      const LeafPlace place = {unit, flat, i};
      leaf_hooks_.push_back(ClaimGradient(kName, parameters[i].first, parameters[i].second,
                                          [weak = weak_from_this(), place](const Tensor&) {
                                            if (auto self = weak.lock())
                                              self->OnLeafGradient(place);
                                          }));
    }
  }
}

// ---- Gathering ----

void ShardingRuntime::StartGather(size_t index) {
  Unit& unit = units_[index];
  for (const auto& flat : unit.flats) {
    if (flat->resident() || flat->gathering()) continue;
    if (std::find(gathering_.begin(), gathering_.end(), index) == gathering_.end()) {
      const size_t limit = static_cast<size_t>(std::max(1, options_.max_gathers_in_flight));
      while (gathering_.size() >= limit) {
        for (const auto& oldest : units_[gathering_.front()].flats) oldest->FinishGather();
        gathering_.pop_front();
      }
      gathering_.push_back(index);
    }
    flat->StartGather();
  }
}

void ShardingRuntime::Gather(size_t index) {
  StartGather(index);
  std::erase(gathering_, index);
  for (const auto& flat : units_[index].flats) flat->FinishGather();
}

void ShardingRuntime::CheckUnchanged(const Unit& unit) const {
  for (const auto& flat : unit.flats) flat->CheckUnchanged();
}

void ShardingRuntime::Show(Unit& unit) {
  for (const auto& flat : unit.flats) flat->Show();
}

void ShardingRuntime::HideIfUnused(Unit& unit) {
  if (unit.calls > 0 || unit.live) return;
  for (const auto& flat : unit.flats) flat->Hide();
}

void ShardingRuntime::Free(Unit& unit, bool after_forward) {
  unit.kept = false;
  std::erase(gathering_, static_cast<size_t>(&unit - units_.data()));
  for (const auto& flat : unit.flats) flat->Free(after_forward);
}

bool ShardingRuntime::KeepsUnsynchronized() const { return KeepsParameters(options_); }

// What was gathered ahead and has not been used.
void ShardingRuntime::FreeStrays() {
  for (Unit& unit : units_) {
    if (unit.calls == 0 && !unit.kept && !unit.live) Free(unit, /*after_forward=*/false);
  }
}

// ---- Forward ----

void ShardingRuntime::BeforeForward(size_t index, TensorList& inputs) {
  std::lock_guard<std::mutex> lock(mutex_);
  Unit& unit = units_[index];
  // Recomputation during backward: the order is that of forward already.
  const bool recomputes = autograd::InBackward();
  const bool records = autograd::GradEnabled() && !recomputes;
  if (summoned_ != Summoned::kNo) {
    CheckSummonedForward();
    ++unit.calls;
    return;
  }
  if (!recomputes && unit.calls == 0 && (index == kRoot || (records && fresh_))) {
    order_.BeginForward(records);
    fresh_ = false;
    order_is_open_ = index != kRoot;
  }
  // What was kept for a backward that never came is stale after a step.
  if (unit.kept && unit.calls == 0 && !unit.live) {
    for (const auto& flat : unit.flats) flat->FreeIfChanged();
  }
  ++unit.calls;
  if (recomputes) CheckUnchanged(unit);
  Gather(index);
  Show(unit);
  if (!recomputes) {
    const std::optional<size_t> next = order_.OnForward(index);
    if (next.has_value() && options_.forward_prefetch) StartGather(*next);
  }
  if (records && !unit.used) {
    unit.used = true;
    uses_.push_back(index);
  }
  CastInputs(unit, inputs);
}

void ShardingRuntime::CheckSummonedForward() const {
  if (summoned_ == Summoned::kShown) return;
  throw FailedPreconditionError(
      "FullyShardedDataParallel: the module was called inside SummonFullParameters with rank0_only "
      "or offload_to_cpu, where not every rank has parameters to compute with; call it outside, or "
      "summon without them");
}

void ShardingRuntime::CastInputs(Unit& unit, TensorList& inputs) {
  if (unit.full_precision) {
    DType outputs = *unit.input_dtype;
    for (const Tensor& input : inputs) {
      if (!IsFloating(input)) continue;
      outputs = input.dtype();
      break;
    }
    unit.output_dtypes.push_back(outputs);
  }
  if (!unit.input_dtype || !options_.mixed_precision.cast_forward_inputs) return;
  for (Tensor& input : inputs) {
    if (IsFloating(input)) input = To(input, *unit.input_dtype);
  }
}

void ShardingRuntime::CastOutputs(size_t index, TensorList& outputs) {
  Unit& unit = units_[index];
  std::optional<DType> dtype;
  if (unit.full_precision && !unit.output_dtypes.empty()) dtype = unit.output_dtypes.back();
  if (index == kRoot && options_.mixed_precision.output_dtype) {
    dtype = options_.mixed_precision.output_dtype;
  }
  if (!dtype) return;
  for (Tensor& output : outputs) {
    if (IsFloating(output)) output = To(output, *dtype);
  }
}

void ShardingRuntime::AfterForward(size_t index, TensorSpan inputs, TensorList& outputs) {
  std::lock_guard<std::mutex> lock(mutex_);
  Unit& unit = units_[index];
  ++unit.finished;
  --unit.calls;
  if (summoned_ != Summoned::kNo) return;
  CastOutputs(index, outputs);
  const bool recomputes = autograd::InBackward();
  bool recorded = false;
  for (const Tensor& output : outputs) {
    recorded = recorded || (output.defined() && autograd::RequiresGrad(output));
  }
  if (recorded && !recomputes) {
    WatchOutputs(index, outputs);
    WatchInputs(index, inputs);
  }
  if (recorded && !recomputes) order_.OnForwardDone(index);
  EndUse(unit, recorded && !recomputes);
  if (index == kRoot && unit.calls == 0 && !recomputes) {
    order_.EndForward();
    FreeStrays();
  }
}

// A use is over: the parameters stay where a backward will want them soon.
void ShardingRuntime::EndUse(Unit& unit, bool recorded) {
  if (recorded && !unit.reshard_after_forward) unit.kept = true;
  HideIfUnused(unit);
  if (unit.calls == 0 && !unit.kept && !unit.live) Free(unit, /*after_forward=*/recorded);
}

void ShardingRuntime::LeaveForward(size_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  Unit& unit = units_[index];
  if (!unit.output_dtypes.empty() && unit.full_precision) unit.output_dtypes.pop_back();
  if (unit.finished > 0) {
    --unit.finished;
    return;
  }
  // An exception has left the forward pass, or its pre-hook.
  if (unit.calls > 0) --unit.calls;
  if (summoned_ != Summoned::kNo) return;
  try {
    EndUse(unit, /*recorded=*/false);
    if (index == kRoot && unit.calls == 0) FreeStrays();
  } catch (const Error&) {
    // Of a gather that was under way: the group has failed, and its next call says why.
  }
}

void ShardingRuntime::WatchOutputs(size_t index, TensorSpan outputs) {
  for (const Tensor& output : outputs) {
    if (!output.defined() || !autograd::RequiresGrad(output)) continue;
    autograd::RegisterHook(output, [weak = weak_from_this(), index](const Tensor&) {
      if (auto self = weak.lock()) {
        std::lock_guard<std::mutex> lock(self->mutex_);
        self->CheckWrapped("Backward() over a forward pass of before");
        self->BeforeBackward(index);
      }
      return Tensor();
    });
  }
}

bool ShardingRuntime::HasFrozen(const Unit& unit) {
  return std::any_of(unit.flats.begin(), unit.flats.end(),
                     [](const auto& flat) { return !flat->trainable(); });
}

// Frozen parameters have no gradient that says that they are done with; that of the inputs does.
void ShardingRuntime::WatchInputs(size_t index, TensorSpan inputs) {
  Unit& unit = units_[index];
  if (!HasFrozen(unit)) return;
  for (const Tensor& input : inputs) {
    if (!input.defined() || !autograd::RequiresGrad(input)) continue;
    ++unit.open_inputs;
    autograd::RegisterHook(input, [weak = weak_from_this(), index](const Tensor&) {
      if (auto self = weak.lock(); self && !self->unwrapped_) self->OnInputGradient(index);
      return Tensor();
    });
  }
}

TensorList ShardingRuntime::Call(size_t unit, TensorList inputs,
                                 const nn::ForwardFunction& method) {
  struct Leave {
    ~Leave() { runtime.LeaveForward(unit); }
    ShardingRuntime& runtime;
    size_t unit;
  };
  const Leave leave{*this, unit};
  BeforeForward(unit, inputs);
  TensorList outputs = method(inputs);
  AfterForward(unit, inputs, outputs);
  return outputs;
}

// ---- Scopes and calls from outside ----

void ShardingRuntime::ChangeNoSyncDepth(int change) {
  std::lock_guard<std::mutex> lock(mutex_);
  no_sync_depth_ += change;
}

void ShardingRuntime::ChangeNoAllReduceDepth(int change) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (change > 0) {
    if (!IsHybrid(options_.sharding_strategy)) {
      throw InvalidArgumentError(absl::StrCat(
          kName,
          ": NoAllReduce leaves out what a hybrid strategy does among its replicas, and this one "
          "is no hybrid; use NoSync"));
    }
    if (options_.optimizer_in_backward != nullptr) {
      throw UnimplementedError(absl::StrCat(
          kName,
          ": NoAllReduce does not go with optimizer_in_backward, which steps by what each backward "
          "reduces; call Step() instead"));
    }
  }
  no_all_reduce_depth_ += change;
}

void ShardingRuntime::DropAccumulated() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Unit& unit : units_) {
    for (const auto& flat : unit.flats) flat->DropSum();
    unit.used = false;
    if (!unit.live && unit.calls == 0) Free(unit, /*after_forward=*/false);
  }
  uses_.clear();
  last_uses_.clear();
}

void ShardingRuntime::CheckWrapped(const char* call) const {
  if (!unwrapped_) return;
  throw FailedPreconditionError(
      absl::StrCat(kName, ": ", call,
                   " was called after Unwrap(), when nothing is sharded; make a new ", kName));
}

void ShardingRuntime::CheckIdle(const char* call) {
  CheckWrapped(call);
  if (summoned_ != Summoned::kNo) {
    throw FailedPreconditionError(absl::StrCat("FullyShardedDataParallel: ", call,
                                               " was called inside SummonFullParameters; leave "
                                               "that scope first"));
  }
  for (const Unit& unit : units_) {
    if (unit.calls == 0 && !backward_) continue;
    throw FailedPreconditionError(
        absl::StrCat("FullyShardedDataParallel: ", call, " was called during a ",
                     backward_ ? "backward" : "forward", " pass; call it before or after it"));
  }
}

void ShardingRuntime::Unshard(size_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  CheckIdle("Unshard");
  Gather(index);
  units_[index].kept = true;
}

void ShardingRuntime::Reshard(size_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  CheckIdle("Reshard");
  Free(units_[index], /*after_forward=*/false);
}

// ---- The end ----

std::vector<std::vector<bool>> ShardingRuntime::AnyRank(std::vector<std::vector<bool>> flags) {
  std::vector<uint8_t> bytes;
  for (const std::vector<bool>& some : flags) bytes.insert(bytes.end(), some.begin(), some.end());
  const Tensor exchanged =
      FromVector<uint8_t>(bytes, {static_cast<int64_t>(bytes.size())}, {.device = Cpu()});
  groups_.world->AllReduce(exchanged, {.op = comm::ReduceOp::kMax}).Wait();
  bytes = exchanged.ToVector<uint8_t>();
  size_t next = 0;
  for (std::vector<bool>& some : flags) {
    for (size_t i = 0; i < some.size(); ++i) some[i] = bytes[next++] != 0;
  }
  return flags;
}

std::vector<std::vector<bool>> ShardingRuntime::ExchangeHasGradient() {
  std::vector<std::vector<bool>> flags;
  for (const Unit& unit : units_) {
    for (const auto& flat : unit.flats) {
      std::vector<bool>& has = flags.emplace_back();
      for (const auto& [name, parameter] : flat->parameters()) {
        has.push_back(autograd::Grad(parameter).defined());
      }
    }
  }
  return AnyRank(std::move(flags));
}

void ShardingRuntime::Unwrap() {
  std::lock_guard<std::mutex> lock(mutex_);
  CheckIdle("Unwrap");
  // A rank that has to refuse tells the others, which would wait for it.
  std::optional<Error> refusal;
  bool sums = false;
  for (const Unit& unit : units_) {
    for (const auto& flat : unit.flats) {
      sums = sums || flat->has_sum() || flat->has_partial();
      try {
        flat->CheckStored();
      } catch (const Error& error) {
        if (!refusal) refusal = error;
      }
    }
  }
  const std::vector<bool> refused = AnyRank({{sums, refusal.has_value()}})[0];
  if (refusal) throw *refusal;
  if (refused[1]) {
    throw FailedPreconditionError(absl::StrCat(
        kName, ": Unwrap: another rank cannot, and its error says why; nothing has changed"));
  }
  if (refused[0]) {
    throw FailedPreconditionError(absl::StrCat(
        kName,
        ": Unwrap: gradients of NoSync or NoAllReduce were not reduced; run a backward "
        "outside of that scope first, or DropAccumulated()"));
  }
  for (Unit& unit : units_) Free(unit, /*after_forward=*/false);
  const std::vector<std::vector<bool>> has = ExchangeHasGradient();
  std::vector<std::pair<TensorList, TensorList>> whole;
  for (const Unit& unit : units_) {
    for (const auto& flat : unit.flats) {
      TensorList parameters = flat->Whole();
      whole.emplace_back(std::move(parameters), flat->WholeGradients(has[whole.size()]));
    }
  }
  // From here on nothing fails.
  for (nn::HookHandle& hook : module_hooks_) hook.Remove();
  for (autograd::HookHandle& hook : leaf_hooks_) hook.Remove();
  size_t next = 0;
  for (const Unit& unit : units_) {
    for (const auto& flat : unit.flats) {
      flat->Release(whole[next].first, whole[next].second);
      ++next;
    }
  }
  gathering_.clear();
  units_.clear();
  pools_.clear();
  unwrapped_ = true;
}

}  // namespace lockstep::strategies
