// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Functions that a backward calls when a gradient is ready.
//
//   HookHandle handle = RegisterHook(h, [](const Tensor& g) { return Mul(g, 0.5); });
//   RegisterPostAccumulateGradHook(w, [&](const Tensor& leaf) { Reduce(Grad(leaf)); });
//   handle.Remove();
//
// Hooks run on the thread that runs the tensor's device in that backward, in the order registered,
// without recording unless the backward creates a graph. What they throw ends the backward.
#ifndef LOCKSTEP_AUTOGRAD_HOOKS_H_
#define LOCKSTEP_AUTOGRAD_HOOKS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/strings/string_view.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd {

namespace internal {
class HookRegistry;
}

// Names one registered hook. Copies name the same one. Dropping a handle does not remove the hook.
class HookHandle {
 public:
  HookHandle() = default;
  HookHandle(std::weak_ptr<internal::HookRegistry> registry, uint64_t id)
      : registry_(std::move(registry)), id_(id) {}

  // Does nothing when the hook or its tensor is gone. A call that is already running completes.
  void Remove();

 private:
  std::weak_ptr<internal::HookRegistry> registry_;
  uint64_t id_ = 0;
};

// The complete gradient of a tensor in one backward; returns what replaces it (same shape, dtype
// and device), or an undefined tensor to leave it alone.
using GradHook = std::function<Tensor(const Tensor& gradient)>;
// Called with the leaf.
using LeafHook = std::function<void(const Tensor& leaf)>;

// Calls `hook` before the gradient of `tensor` is used: once in each backward, after the last
// contribution. On a tensor with history, the hook belongs to the history it has now: an in-place
// op later does not move it. Throws FailedPrecondition when the tensor does not require a gradient,
// InvalidArgument for an empty hook.
HookHandle RegisterHook(const Tensor& tensor, GradHook hook);

// Calls `hook` after a backward has added to Grad(leaf): once in each backward that reaches the
// leaf, after the last contribution, however often the leaf was used. Also called when the
// contributions were all undefined and nothing was added. Gradients() does not call it. Throws
// FailedPrecondition unless the tensor is a leaf that requires a gradient.
HookHandle RegisterPostAccumulateGradHook(const Tensor& leaf, LeafHook hook);

// The same for a hook of which a leaf has at most one with the same `role`: what averages gradients
// must not do so twice. Throws AlreadyExists while the leaf has one.
HookHandle RegisterPostAccumulateGradHook(const Tensor& leaf, LeafHook hook,
                                          absl::string_view role);

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_HOOKS_H_
