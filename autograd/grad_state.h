// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What autograd keeps per thread, in ThreadState::layer_state. Internal.
#ifndef LOCKSTEP_AUTOGRAD_GRAD_STATE_H_
#define LOCKSTEP_AUTOGRAD_GRAD_STATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::autograd::internal {

// Who saves a tensor, and what the tensor is to it. Valid during the call of the hook.
struct SavedBy {
  enum class Role : uint8_t { kInput, kOutput, kOther };

  absl::string_view op;
  Role role = Role::kOther;
  int index = 0;
};

struct SavedHooks {
  std::function<PackedTensor(const Tensor& tensor, const SavedBy& by)> pack;
  UnpackHook unpack;
};

// Results that an op call has already: the next call of `op` that reaches the gradients slot takes
// them instead of running a kernel, and is recorded as always. They are tensors of their own,
// without history.
struct ComputedOutputs {
  OpId op;
  TensorList outputs;
  bool taken = false;
};

// One outermost backward. Outlives it where a thread that was started inside captured its state.
struct BackwardRun {
  std::mutex mutex;
  bool finished = false;
  std::vector<std::function<void()>> callbacks;
  // Whether the outermost backward's graph leads to a target (Edge::target()).
  std::function<bool(const void* target)> reaches;
};

// Immutable once installed, as every LayerState.
struct GradState : LayerState {
  bool inference = false;
  std::shared_ptr<const SavedHooks> hooks;
  std::shared_ptr<BackwardRun> run;
  std::shared_ptr<ComputedOutputs> computed;
  std::shared_ptr<std::atomic<int64_t>> saved_bytes;  // of a SavedBytesScope
};

inline constexpr int kGradSlot = static_cast<int>(DispatchLayer::kGradients);

// Null when everything is as by default.
inline const GradState* CurrentGradState() {
  return static_cast<const GradState*>(CurrentThreadState().layer_state[kGradSlot].get());
}

// Installs a copy of the current state that `change` has edited; returns what was there before.
template <typename Change>
std::shared_ptr<const LayerState> ReplaceGradState(Change&& change) {
  const GradState* current = CurrentGradState();
  auto next =
      current == nullptr ? std::make_shared<GradState>() : std::make_shared<GradState>(*current);
  change(*next);
  return std::exchange(MutableThreadState().layer_state[kGradSlot], std::move(next));
}

}  // namespace lockstep::autograd::internal

#endif  // LOCKSTEP_AUTOGRAD_GRAD_STATE_H_
