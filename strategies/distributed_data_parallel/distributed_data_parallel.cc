// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/claim_sharding.h"
#include "lockstep/strategies/distributed_data_parallel/module_guard.h"
#include "lockstep/strategies/lost_parameter.h"
#include "lockstep/strategies/parameter_sync.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

using Options = DistributedDataParallelOptions;

constexpr char kName[] = "DistributedDataParallel";

// What the names in a state begin with.
constexpr char kPending[] = "pending.";
constexpr char kHook[] = "hook.";

// Those that are not ignored.
NamedTensors Kept(const NamedTensors& tensors, const Options& options) {
  return tensors.Filter([&](const std::string& name, const Tensor&) {
    const auto& ignored = options.ignored_parameters;
    return std::find(ignored.begin(), ignored.end(), name) == ignored.end();
  });
}

void CheckIgnored(const NamedTensors& all, const Options& options) {
  for (const std::string& name : options.ignored_parameters) {
    if (all.Contains(name)) continue;
    throw InvalidArgumentError(absl::StrCat(
        "DistributedDataParallel: ignored_parameters names ", name,
        ", which is neither a parameter nor a buffer of the module (a shared one has the first of "
        "its names)"));
  }
}

// The parameters that require gradients.
NamedTensors Trainable(const NamedTensors& parameters) {
  NamedTensors trainable = parameters.Filter(
      [](const std::string&, const Tensor& t) { return autograd::RequiresGrad(t); });
  if (trainable.empty()) {
    throw InvalidArgumentError(absl::StrCat(
        "DistributedDataParallel: none of the module's ", parameters.size(),
        " parameters requires a gradient; there is nothing to reduce, use the module itself"));
  }
  return trainable;
}

void CheckDeviceIds(const NamedTensors& parameters, const Options& options) {
  if (options.device_ids.empty()) return;
  if (options.device_ids.size() > 1) {
    throw InvalidArgumentError(absl::StrCat(
        "DistributedDataParallel: device_ids has ", options.device_ids.size(),
        " devices; give one, or none for a module that spans several (DataParallel takes a list)"));
  }
  const Device device = options.device_ids[0];
  for (const auto& [name, parameter] : parameters) {
    if (parameter.device() == device) continue;
    throw InvalidArgumentError(absl::StrCat(
        "DistributedDataParallel: device_ids is ", ToString(device), " and parameter ", name,
        " is on ", ToString(parameter.device()),
        "; give no device_ids for a module that spans devices, or move it with To(device)"));
  }
}

ReducerOptions MakeReducerOptions(const std::shared_ptr<nn::Module>& module,
                                  const Options& options) {
  return {.buckets = {.bucket_cap_bytes = options.bucket_cap_bytes,
                      .first_bucket_bytes = options.first_bucket_bytes},
          .find_unused_parameters = options.find_unused_parameters,
          .static_graph = options.static_graph,
          .gradient_as_bucket_view = options.gradient_as_bucket_view,
          .check_finite = options.check_finite,
          .staleness = options.staleness,
          .hook = options.communication_hook,
          .optimizer_in_backward = options.optimizer_in_backward,
          .check_before_pass = [guard = ModuleGuard(module)] { guard.Check(); }};
}

// Of the options those by which ranks communicate, or which say what they step by.
std::vector<std::string> SharedSettings(const Options& options) {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return {absl::StrCat("bucket_cap_bytes=", options.bucket_cap_bytes),
          absl::StrCat("first_bucket_bytes=", options.first_bucket_bytes),
          absl::StrCat("find_unused_parameters=", flag(options.find_unused_parameters)),
          absl::StrCat("static_graph=", flag(options.static_graph)),
          absl::StrCat("broadcast_buffers=", flag(options.broadcast_buffers)),
          absl::StrCat("communication_hook=", options.communication_hook ? "given" : "none"),
          absl::StrCat("check_finite=", flag(options.check_finite)),
          absl::StrCat("optimizer_in_backward=",
                       options.optimizer_in_backward != nullptr ? "given" : "none"),
          absl::StrCat("staleness=", options.staleness)};
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<nn::Module> module,
                                                 std::shared_ptr<comm::Communicator> group,
                                                 const DistributedDataParallelOptions& options)
    : module_(std::move(module)), group_(std::move(group)) {
  if (!module_ || !group_) {
    throw InvalidArgumentError(absl::StrCat("DistributedDataParallel: the ",
                                            module_ ? "process group" : "module", " is null"));
  }
  NamedTensors all = module_->NamedParameters();
  all.InsertAll(module_->NamedBuffers());
  synced_ = Kept(all, options);
  // Before checks of this rank alone: a rank that fails one must not leave the others waiting, and
  // ranks that agree fail it together.
  if (options.init_sync) VerifySameTensors(kName, synced_, *group_, SharedSettings(options));
  CheckNotLost(kName, synced_);
  CheckIgnored(all, options);
  const NamedTensors parameters = Kept(module_->NamedParameters(), options);
  CheckUnsharded(kName, parameters);
  CheckDeviceIds(parameters, options);
  reduced_ = Trainable(parameters);
  reducer_ = std::make_shared<Reducer>(reduced_, group_, MakeReducerOptions(module_, options));
  reducer_->InstallHooks();
  if (options.init_sync) BroadcastTensors(synced_, *group_);
  const NamedTensors buffers = Kept(module_->NamedBuffers(), options);
  buffers_ = std::make_shared<BufferSync>(buffers, group_, reducer_, !options.init_sync);
  if (!options.broadcast_buffers || buffers.empty()) return;
  forward_hook_ = module_->RegisterForwardPreHook(
      [sync = std::weak_ptr(buffers_)](nn::Module& called, TensorList&) {
        if (const auto buffers = sync.lock()) buffers->BeforeForward(called);
      });
}

DistributedDataParallel::~DistributedDataParallel() {
  forward_hook_.Remove();
  try {
    reducer_->FinishPending();
  } catch (const Error&) {
    // The group has failed: what was under way is lost, and its next call says why.
  }
}

void DistributedDataParallel::BroadcastBuffers() { buffers_->Broadcast(); }
void DistributedDataParallel::FinishPending() { reducer_->FinishPending(); }

StrategyState DistributedDataParallel::SaveState() {
  StrategyState state;
  state.InsertAll(reducer_->SaveState(), kPending);
  if (reducer_->options().hook) state.InsertAll(reducer_->options().hook->SaveState(), kHook);
  return state;
}

void DistributedDataParallel::LoadState(const StrategyState& state) {
  for (const NamedTensors* tensors : {&state.shared, &state.own}) {
    for (const auto& [name, tensor] : *tensors) {
      if (absl::StartsWith(name, kPending) || absl::StartsWith(name, kHook)) continue;
      throw InvalidArgumentError(
          absl::StrCat("DistributedDataParallel: the state has ", name, ", which is not its"));
    }
  }
  const StrategyState of_hook = state.Part(kHook);
  if (reducer_->options().hook) {
    reducer_->options().hook->LoadState(of_hook);
  } else if (!of_hook.empty()) {
    throw InvalidArgumentError(
        "DistributedDataParallel: the state is of one with a communication_hook; give that hook");
  }
  reducer_->LoadState(state.Part(kPending));
}

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp) : reducer_(ddp.reducer_) {
  reducer_->ChangeNoSyncDepth(1);
}
DistributedDataParallel::NoSync::~NoSync() { reducer_->ChangeNoSyncDepth(-1); }

}  // namespace lockstep::strategies
