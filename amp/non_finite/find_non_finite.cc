// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/amp/non_finite/find_non_finite.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/nn/hooks.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/user_layer.h"

namespace lockstep::amp {
namespace {

// What one call of FindNonFinite has seen. Shared with the threads that work for it, and with
// graphs that outlive it.
class Watch {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  void Stop() { done_.store(true, std::memory_order_release); }

  int64_t CountOp() { return ops_.fetch_add(1, std::memory_order_relaxed); }

  // The first finding counts.
  void Found(NonFiniteReport report) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (report_.has_value()) return;
    const auto path = paths_.find(std::this_thread::get_id());
    if (path != paths_.end() && !path->second.empty()) report.module = path->second.back();
    report_ = std::move(report);
    Stop();
  }
  std::optional<NonFiniteReport> report() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return report_;
  }

  void Enter(const std::string& module) {
    std::lock_guard<std::mutex> lock(mutex_);
    paths_[std::this_thread::get_id()].push_back(module);
  }
  // Nothing when the module was not entered: an earlier pre-hook threw.
  void Leave(const std::string& module) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::string>& path = paths_[std::this_thread::get_id()];
    if (!path.empty() && path.back() == module) path.pop_back();
  }

 private:
  std::atomic<bool> done_ = false;
  std::atomic<int64_t> ops_ = 0;
  mutable std::mutex mutex_;
  std::map<std::thread::id, std::vector<std::string>> paths_;  // modules being run
  std::optional<NonFiniteReport> report_;
};
// The name of an input; lists have equal lengths and follow each other whole.
const std::string& InputName(const OpInfo& info, size_t count, size_t position) {
  size_t lists = 0;
  for (const OpInfo::Input& input : info.inputs) lists += input.list;
  const size_t length = lists == 0 ? 0 : (count - (info.inputs.size() - lists)) / lists;
  size_t end = 0;
  for (const OpInfo::Input& input : info.inputs) {
    end += input.list ? length : 1;
    if (position < end) return input.name;
  }
  return info.inputs.back().name;
}

const std::string& OutputName(const OpInfo& info, size_t position) {
  return info.outputs[std::min(position, info.outputs.size() - 1)];
}

// Whether the op only writes its first input: what is in it before may be anything.
bool OverwritesFirst(const OpCall& call) {
  return call.op == OpId::kCopyInto || (call.in_place && call.op == OpId::kFill);
}

// Rows that attend to nothing have -inf here, which the kernels expect.
bool InfiniteOnPurpose(const std::string& output) { return output == "log_sum_exp"; }

NonFiniteReport Report(NonFiniteReport::Source source, const OpInfo& info, const Tensor& tensor,
                       size_t position, const std::string& operand, Finiteness worst) {
  NonFiniteReport report;
  report.source = source;
  report.name = info.name;
  report.position = static_cast<int64_t>(position);
  report.operand = operand;
  report.tensor = tensor.DebugString();
  if (const auto element = FirstNonFinite(tensor, worst)) report.element = *element;
  return report;
}

// The worst of what the call reads; a NaN among it is reported.
Finiteness CheckInputs(const OpInfo& info, const OpCall& call, int64_t number, Watch& watch) {
  Finiteness worst = Finiteness::kFinite;
  for (const Scalar& scalar : call.scalars) {
    if (std::isinf(scalar.AsDouble())) worst = Finiteness::kInfinite;
  }
  for (size_t i = OverwritesFirst(call) ? 1 : 0; i < call.inputs.size(); ++i) {
    const Finiteness input = FinitenessOf(call.inputs[i]);
    worst = std::max(worst, input);
    if (input != Finiteness::kNan) continue;
    NonFiniteReport report = Report(NonFiniteReport::Source::kOpInput, info, call.inputs[i], i,
                                    InputName(info, call.inputs.size(), i), Finiteness::kNan);
    report.ops_before = number;
    watch.Found(std::move(report));
    break;
  }
  return worst;
}

// Reports `tensor` if it is worse than what the op was given. Whether it is.
bool CheckOutput(const OpInfo& info, const Tensor& tensor, size_t position,
                 const std::string& operand, Finiteness inputs, int64_t number, Watch& watch) {
  const Finiteness output = FinitenessOf(tensor);
  if (output <= inputs) return false;
  if (output == Finiteness::kInfinite && InfiniteOnPurpose(operand)) return false;
  // The element that is worse, not one that may be there on purpose.
  const Finiteness worst = inputs == Finiteness::kFinite ? Finiteness::kInfinite : Finiteness::kNan;
  NonFiniteReport report =
      Report(NonFiniteReport::Source::kOpOutput, info, tensor, position, operand, worst);
  report.inputs = inputs;
  report.ops_before = number;
  watch.Found(std::move(report));
  return true;
}

// Shared with the threads that work for one call of FindNonFinite, and with graphs that outlive it.
class WatchLayer : public UserLayer {
 public:
  explicit WatchLayer(std::shared_ptr<Watch> watch) : watch_(std::move(watch)) {}
  TensorList Run(const OpCall& call, Below below) const override;

 private:
  bool IsInnermost() const {
    return this == FindUserLayer([](const UserLayer& layer) {
             return dynamic_cast<const WatchLayer*>(&layer) != nullptr;
           });
  }

  std::shared_ptr<Watch> watch_;
};

TensorList WatchLayer::Run(const OpCall& call, Below below) const {
  Watch& watch = *watch_;
  if (watch.done() || !IsInnermost()) return below(call);
  const OpInfo& info = GetOpInfo(call.op);
  const int64_t number = watch.CountOp();
  const Finiteness inputs = CheckInputs(info, call, number, watch);
  TensorList outputs = below(call);
  // A layer below may have called ops of its own and found one of them.
  if (watch.done() || info.kind == OpKind::kView) return outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (CheckOutput(info, outputs[i], i, OutputName(info, i), inputs, number, watch)) {
      return outputs;
    }
  }
  if (info.mutates == 0) return outputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (CheckOutput(info, call.inputs[i], outputs.size() + i,
                    InputName(info, call.inputs.size(), i), inputs, number, watch)) {
      break;
    }
  }
  return outputs;
}

// Scope: ops of this thread, and of those that take over its state, pass through the watch.
class WatchScope {
 public:
  explicit WatchScope(const std::shared_ptr<Watch>& watch)
      : watch_(watch), layer_(std::make_shared<WatchLayer>(watch)) {}
  ~WatchScope() { watch_->Stop(); }
  WatchScope(const WatchScope&) = delete;
  WatchScope& operator=(const WatchScope&) = delete;

 private:
  std::shared_ptr<Watch> watch_;
  UserLayerScope layer_;
};

// Scope: the watch knows which module runs.
class PathHooks {
 public:
  PathHooks(nn::Module* module, const std::shared_ptr<Watch>& watch) {
    if (module == nullptr) return;
    for (const auto& [path, child] : module->NamedModules()) {
      handles_.push_back(child->RegisterForwardPreHook(
          [watch, path = path](nn::Module&, TensorList&) { watch->Enter(path); }));
      // Not a forward hook: an exception ends a region that is computed again.
      handles_.push_back(child->RegisterForwardExitHook(
          [watch, path = path](nn::Module&) { watch->Leave(path); }));
    }
  }
  ~PathHooks() {
    for (nn::HookHandle& handle : handles_) handle.Remove();
  }
  PathHooks(const PathHooks&) = delete;
  PathHooks& operator=(const PathHooks&) = delete;

 private:
  std::vector<nn::HookHandle> handles_;
};

class KeepGenerators {
 public:
  KeepGenerators() : saved_(ThreadGenerators()) {}
  ~KeepGenerators() { ThreadGenerators() = saved_; }
  KeepGenerators(const KeepGenerators&) = delete;
  KeepGenerators& operator=(const KeepGenerators&) = delete;

 private:
  RandomStreams saved_;
};

std::optional<NonFiniteReport> CheckNamed(const NamedTensors& tensors,
                                          NonFiniteReport::Source source, Finiteness worst) {
  for (const auto& [name, tensor] : tensors) {
    const auto element = FirstNonFinite(tensor, worst);
    if (!element.has_value()) continue;
    NonFiniteReport report;
    report.source = source;
    report.name = name;
    report.tensor = tensor.DebugString();
    report.element = *element;
    return report;
  }
  return std::nullopt;
}

}  // namespace

std::string NonFiniteReport::ToString() const {
  const std::string has =
      absl::StrCat(": ", tensor, " has ", element.value, " at ", lockstep::ToString(element.index));
  const std::string in = module.empty() ? "" : absl::StrCat(" in module \"", module, "\"");
  switch (source) {
    case Source::kParameter:
      return absl::StrCat("parameter \"", name, "\"", has);
    case Source::kBuffer:
      return absl::StrCat("buffer \"", name, "\"", has);
    case Source::kOpInput:
      return absl::StrCat("input ", position, " (", operand, ") of op ", name, in, has,
                          "; no op before made it");
    case Source::kOpOutput:
      return absl::StrCat("op ", name, ", output ", position, " (", operand, ")", in, has,
                          inputs == Finiteness::kFinite
                              ? "; its inputs were finite"
                              : "; its inputs had infinities, but no nan");
  }
  return "";
}

std::optional<NonFiniteReport> FindNonFinite(absl::FunctionRef<void()> body, nn::Module* module) {
  using Source = NonFiniteReport::Source;
  if (module != nullptr) {
    auto found = CheckNamed(module->NamedParameters(), Source::kParameter, Finiteness::kInfinite);
    if (!found.has_value()) {
      found = CheckNamed(module->NamedBuffers(), Source::kBuffer, Finiteness::kNan);
    }
    if (found.has_value()) return found;
  }
  const auto watch = std::make_shared<Watch>();
  const KeepGenerators generators;
  const PathHooks hooks(module, watch);
  try {
    const WatchScope scope(watch);
    body();
  } catch (...) {
    if (!watch->report().has_value()) throw;
  }
  return watch->report();
}

}  // namespace lockstep::amp
