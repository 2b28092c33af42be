// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/module.h"

#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::nn {

Module::~Module() {
  if (hooks_ != nullptr) hooks_->owner = nullptr;
}

// ---- Registration ----

void Module::CheckName(absl::string_view call, absl::string_view name) const {
  if (name.empty() || name.find('.') != absl::string_view::npos) {
    throw InvalidArgumentError(absl::StrCat(call, ": \"", name,
                                            "\" cannot be a name: names are not empty and have no "
                                            "dots, which join the parts of a path"));
  }
  bool taken = false;
  for (const Slot& slot : slots_) taken |= slot.name == name;
  for (const auto& child : children_) taken |= child.first == name;
  if (taken) {
    throw AlreadyExistsError(absl::StrCat(call, ": this module already has a \"", name, "\""));
  }
}

void Module::AddSlot(absl::string_view call, absl::string_view name, Slot slot, Tensor value) {
  CheckName(call, name);
  if (slot.tensor == nullptr) {
    throw InvalidArgumentError(absl::StrCat(call, ": \"", name, "\" has no data member"));
  }
  *slot.tensor = std::move(value);
  slots_.push_back(std::move(slot));
}

void Module::RegisterParameter(absl::string_view name, Tensor* slot, Tensor value,
                               bool requires_grad) {
  if (value.defined()) {
    if (!IsFloatingPoint(value.dtype())) {
      throw InvalidArgumentError(absl::StrCat("RegisterParameter: \"", name, "\" is ",
                                              value.DebugString(),
                                              "; parameters are floating point, use a buffer"));
    }
    autograd::SetRequiresGrad(value, requires_grad);
  }
  AddSlot("RegisterParameter", name, {std::string(name), slot}, std::move(value));
}

void Module::RegisterBuffer(absl::string_view name, Tensor* slot, Tensor value, bool persistent) {
  AddSlot("RegisterBuffer", name, {std::string(name), slot, true, persistent}, std::move(value));
}

void Module::AddChild(absl::string_view name, std::shared_ptr<Module> module) {
  CheckName("RegisterModule", name);
  if (module == nullptr || module.get() == this) {
    throw InvalidArgumentError(absl::StrCat("RegisterModule: \"", name, "\" is ",
                                            module == nullptr ? "null" : "the module itself"));
  }
  children_.emplace_back(std::string(name), std::move(module));
}

// ---- Walks ----

void Module::Walk(const std::string& prefix,
                  absl::FunctionRef<void(const std::string&, const Module&)> fn) const {
  fn(prefix, *this);
  for (const auto& [name, child] : children_) child->Walk(absl::StrCat(prefix, name, "."), fn);
}

std::vector<std::pair<std::string, const Module::Slot*>> Module::AllSlots() const {
  std::vector<std::pair<std::string, const Slot*>> result;
  Walk("", [&](const std::string& prefix, const Module& module) {
    for (const bool buffers : {false, true}) {
      for (const Slot& slot : module.slots_) {
        if (slot.buffer == buffers && slot.tensor->defined()) {
          result.emplace_back(prefix + slot.name, &slot);
        }
      }
    }
  });
  return result;
}

NamedTensors Module::NamedParameters() const {
  NamedTensors result;
  absl::flat_hash_set<const TensorImpl*> seen;
  for (const auto& [name, slot] : AllSlots()) {
    if (!slot->buffer && seen.insert(&slot->tensor->impl()).second) {
      result.Insert(name, *slot->tensor);
    }
  }
  return result;
}

NamedTensors Module::NamedBuffers() const {
  NamedTensors result;
  absl::flat_hash_set<const TensorImpl*> seen;
  for (const auto& [name, slot] : AllSlots()) {
    if (slot->buffer && seen.insert(&slot->tensor->impl()).second) {
      result.Insert(name, *slot->tensor);
    }
  }
  return result;
}

std::vector<std::pair<std::string, Module*>> Module::NamedModules() {
  std::vector<std::pair<std::string, Module*>> result;
  absl::flat_hash_set<const Module*> seen;
  Walk("", [&](const std::string& prefix, const Module& module) {
    if (!seen.insert(&module).second) return;
    // The walk began at this module, which is not const.
    result.emplace_back(prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1),
                        const_cast<Module*>(&module));
  });
  return result;
}

int64_t Module::ParameterCount() const {
  int64_t count = 0;
  for (const auto& [name, parameter] : NamedParameters()) count += parameter.numel();
  return count;
}

void Module::Apply(absl::FunctionRef<void(Module&)> fn) {
  absl::flat_hash_set<const Module*> seen;
  const auto visit = [&](auto&& self, Module& module) -> void {
    if (!seen.insert(&module).second) return;
    for (const auto& [name, child] : module.children_) self(self, *child);
    fn(module);
  };
  visit(visit, *this);
}

std::string Module::ToString() const {
  if (children_.empty()) return Description();
  std::string text = absl::StrCat(Description(), " {\n");
  for (const auto& [name, child] : children_) {
    const std::string inner = child->ToString();
    absl::StrAppend(&text, "  ", name, ": ");
    for (const char c : inner) {
      text += c;
      if (c == '\n') text += "  ";
    }
    text += '\n';
  }
  return text + "}";
}

// ---- Modes and placement ----

void Module::Train(bool on) {
  for (const auto& [name, module] : NamedModules()) module->training_ = on;
}

void Module::SetRequiresGrad(bool requires_grad) {
  for (const auto& [name, parameter] : NamedParameters()) {
    autograd::SetRequiresGrad(parameter, requires_grad);
  }
}

void Module::ZeroGrad(bool set_to_none) {
  autograd::NoGradScope no_grad;
  for (const auto& [name, parameter] : NamedParameters()) {
    if (set_to_none) {
      autograd::SetGrad(parameter, {});
    } else if (const Tensor grad = autograd::Grad(parameter); grad.defined()) {
      ZeroInPlace(grad);
    }
  }
}

void Module::To(Device device) { MoveTo(device, std::nullopt); }
void Module::To(DType dtype) { MoveTo(std::nullopt, dtype); }
void Module::To(Device device, DType dtype) { MoveTo(device, dtype); }

void Module::MoveTo(std::optional<Device> device, std::optional<DType> dtype) {
  if (dtype.has_value() && !IsFloatingPoint(*dtype)) {
    throw InvalidArgumentError(absl::StrCat("Module::To: ", DTypeName(*dtype),
                                            " is not floating point; parameters must be"));
  }
  struct Move {
    Tensor tensor, moved, grad, moved_grad;
  };
  std::vector<Move> moves;
  autograd::NoGradScope no_grad;
  const auto convert = [&](const Tensor& tensor) {
    Tensor moved = tensor;
    if (dtype.has_value() && IsFloatingPoint(tensor.dtype())) moved = lockstep::To(moved, *dtype);
    if (device.has_value()) moved = lockstep::To(moved, *device);
    return moved;
  };
  // Everything is converted before anything is changed: a failure in the middle leaves the module.
  absl::flat_hash_set<const TensorImpl*> seen;
  for (const auto& [name, slot] : AllSlots()) {
    if (!seen.insert(&slot->tensor->impl()).second) continue;
    Move move{*slot->tensor, {}, {}, {}};
    {
      CategoryScope category(MemoryCategory::kParameter);
      move.moved = convert(move.tensor);
    }
    move.grad = autograd::Grad(move.tensor);
    if (move.grad.defined()) {
      CategoryScope category(MemoryCategory::kGradient);
      move.moved_grad = convert(move.grad);
    }
    moves.push_back(std::move(move));
  }
  for (const Move& move : moves) {
    if (!move.moved.IsSame(move.tensor)) move.tensor.SetData(move.moved);
    if (move.grad.defined() && !move.moved_grad.IsSame(move.grad)) {
      move.grad.SetData(move.moved_grad);
    }
  }
}

// ---- Hooks ----

HookSet& Module::hooks() {
  if (hooks_ == nullptr) hooks_ = std::make_shared<HookSet>(this);
  return *hooks_;
}

HookHandle Module::RegisterForwardPreHook(ForwardPreHook hook) {
  return hooks().forward_pre.Add(std::move(hook));
}
HookHandle Module::RegisterForwardHook(ForwardHook hook) {
  return hooks().forward.Add(std::move(hook));
}
HookHandle Module::RegisterForwardExitHook(ForwardExitHook hook) {
  return hooks().forward_exit.Add(std::move(hook));
}
HookHandle Module::RegisterBackwardPreHook(BackwardPreHook hook) {
  return hooks().backward_pre.Add(std::move(hook));
}
HookHandle Module::RegisterBackwardHook(BackwardHook hook) {
  return hooks().backward.Add(std::move(hook));
}

void Module::SetForwardWrapper(ForwardWrapper wrapper) {
  if (!wrapper && hooks_ == nullptr) return;
  if (wrapper && has_forward_wrapper()) {
    throw AlreadyExistsError(absl::StrCat("SetForwardWrapper: this ", Description(),
                                          " has a wrapper already; remove it first"));
  }
  hooks().wrapper = std::move(wrapper);
}

namespace {

class ExitHooksScope {
 public:
  ExitHooksScope(HookSet& hooks, Module& module) : hooks_(hooks), module_(module) {}
  ~ExitHooksScope() {
    if (!hooks_.forward_exit.empty()) hooks_.forward_exit.Run(module_);
  }
  ExitHooksScope(const ExitHooksScope&) = delete;
  ExitHooksScope& operator=(const ExitHooksScope&) = delete;

 private:
  HookSet& hooks_;
  Module& module_;
};

}  // namespace

TensorList Module::CallWithHooks(TensorList inputs, const ForwardFunction& forward) {
  if (hooks_ == nullptr) return forward(inputs);
  const ExitHooksScope exit_hooks(*hooks_, *this);
  hooks_->forward_pre.Run(*this, inputs);
  std::optional<BackwardHookCall> backward;
  if (hooks_->any_backward() && autograd::GradEnabled()) {
    backward.emplace(hooks_);
    inputs = backward->WrapInputs(inputs);
  }
  // A copy: the call may replace the wrapper.
  const ForwardWrapper wrapper = hooks_->wrapper;
  TensorList outputs = wrapper ? wrapper(*this, inputs, forward) : forward(inputs);
  hooks_->forward.Run(*this, TensorSpan(inputs), outputs);
  if (backward.has_value()) outputs = backward->WrapOutputs(outputs);
  return outputs;
}

}  // namespace lockstep::nn
