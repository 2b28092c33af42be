// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What autograd keeps per thread, in ThreadState::layer_state. Internal.
#ifndef LOCKSTEP_AUTOGRAD_GRAD_STATE_H_
#define LOCKSTEP_AUTOGRAD_GRAD_STATE_H_

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::autograd::internal {

struct SavedHooks {
  PackHook pack;
  UnpackHook unpack;
};

// One outermost backward. Outlives it where a thread that was started inside captured its state.
struct BackwardRun {
  std::mutex mutex;
  bool finished = false;
  std::vector<std::function<void()>> callbacks;
};

// Immutable once installed, as every LayerState.
struct GradState : LayerState {
  bool inference = false;
  std::shared_ptr<const SavedHooks> hooks;
  std::shared_ptr<BackwardRun> run;
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
