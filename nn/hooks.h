// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Hooks of modules: functions that run before and after a module's forward pass and when gradients
// reach its outputs and inputs. Registered through nn::Module.
//
//   HookHandle handle = model.RegisterForwardHook(
//       [](nn::Module& module, TensorSpan inputs, TensorList& outputs) { Watch(outputs[0]); });
//   ...
//   handle.Remove();
//
// Forward hooks run under operator(), not under Forward(). An exception leaves the forward pass or
// Backward() as any other error does.
#ifndef LOCKSTEP_NN_HOOKS_H_
#define LOCKSTEP_NN_HOOKS_H_

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

class Module;

// May replace elements of `inputs`.
using ForwardPreHook = std::function<void(Module& module, TensorList& inputs)>;
// May replace elements of `outputs`. `inputs` are what the forward pass got.
using ForwardHook = std::function<void(Module& module, TensorSpan inputs, TensorList& outputs)>;
// Runs when a forward pass is over, after the forward hooks, also when an exception leaves it or a
// pre-hook (PyTorch's always_call). Must not throw.
using ForwardExitHook = std::function<void(Module& module)>;
// Runs in Backward() when the gradients of all outputs that take part are known, before anything of
// the module is differentiated. May replace elements; an output without gradient has an undefined
// one.
using BackwardPreHook = std::function<void(Module& module, TensorList& grad_outputs)>;
// Runs when the gradients of the inputs are known, as far as this module contributes to them. May
// replace elements of `grad_inputs` (undefined for an input that needs none). When no input needs a
// gradient it runs with undefined ones, as soon as the gradients of the outputs are known.
using BackwardHook =
    std::function<void(Module& module, TensorList& grad_inputs, TensorSpan grad_outputs)>;

// Calls a module's forward pass in another way, once or several times (activation checkpointing).
// `forward` may be copied and called later, as long as the module lives. One a module.
using ForwardFunction = std::function<TensorList(TensorSpan inputs)>;
using ForwardWrapper =
    std::function<TensorList(Module& module, TensorSpan inputs, const ForwardFunction& forward)>;

// Removes a hook; does nothing when the module or the hook is gone. Dropping the handle keeps the
// hook.
class HookHandle {
 public:
  HookHandle() = default;
  void Remove() {
    if (const auto removed = removed_.lock()) *removed = true;
    removed_.reset();
  }

 private:
  template <typename Hook>
  friend class HookList;
  explicit HookHandle(std::weak_ptr<std::atomic<bool>> removed) : removed_(std::move(removed)) {}

  std::weak_ptr<std::atomic<bool>> removed_;
};

// Hooks of one kind. A hook may remove itself or others and register new ones while it runs; the
// change counts from the next run on. Runs may overlap on several threads, as long as none of their
// hooks registers one.
template <typename Hook>
class HookList {
 public:
  HookHandle Add(Hook hook) {
    std::erase_if(entries_, [](const Entry& entry) { return entry.removed->load(); });
    auto removed = std::make_shared<std::atomic<bool>>(false);
    HookHandle handle(removed);
    entries_.push_back({std::move(hook), std::move(removed)});
    return handle;
  }

  bool empty() const {
    for (const Entry& entry : entries_) {
      if (!entry.removed->load()) return false;
    }
    return true;
  }

  template <typename... Args>
  void Run(Args&&... args) const {
    // A copy: entries_ may grow or shrink under us.
    std::vector<Entry> entries = entries_;
    std::erase_if(entries, [](const Entry& entry) { return entry.removed->load(); });
    for (const Entry& entry : entries) entry.hook(args...);
  }

 private:
  struct Entry {
    Hook hook;
    std::shared_ptr<std::atomic<bool>> removed;
  };
  std::vector<Entry> entries_;
};

// All hooks of one module. Shared with the graphs of its forward calls, which may outlive it.
struct HookSet {
  explicit HookSet(Module* module) : owner(module) {}

  bool any_backward() const { return !backward_pre.empty() || !backward.empty(); }

  Module* owner;  // null once the module is gone: its backward hooks no longer run
  HookList<ForwardPreHook> forward_pre;
  HookList<ForwardHook> forward;
  HookList<ForwardExitHook> forward_exit;
  HookList<BackwardPreHook> backward_pre;
  HookList<BackwardHook> backward;
  ForwardWrapper wrapper;  // empty: none
};

// One forward call's share in a later backward pass: the inputs and outputs pass through an
// identity of their own, so that the gradients seen are those of this call, whatever else uses the
// tensors.
class BackwardHookCall {
 public:
  explicit BackwardHookCall(std::shared_ptr<HookSet> hooks);

  // The inputs as the forward pass shall see them. Comes before WrapOutputs.
  TensorList WrapInputs(const TensorList& inputs);
  // The outputs as the caller shall see them.
  TensorList WrapOutputs(const TensorList& outputs);

 private:
  struct State;
  class InputIdentity;
  class OutputIdentity;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::nn

#endif  // LOCKSTEP_NN_HOOKS_H_
