// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The thread state of a backward. Internal.
#ifndef LOCKSTEP_AUTOGRAD_BACKWARD_SCOPE_H_
#define LOCKSTEP_AUTOGRAD_BACKWARD_SCOPE_H_

#include <memory>

#include "lockstep/autograd/grad_state.h"
#include "lockstep/autograd/node.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::autograd::internal {

// Scope on the thread that calls a backward: storages count as kBackward, and this thread is inside
// of a run (the outermost backward's, when there is one). Restores everything but the random
// streams: a hook that draws numbers advances the caller's.
class BackwardScope {
 public:
  explicit BackwardScope(bool create_graph);
  ~BackwardScope();
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;

  const std::shared_ptr<BackwardRun>& run() const { return run_; }
  // The caller's own state, as forward ops would capture it.
  const CapturedState& caller_state() const { return caller_; }

  // Runs what QueueEndOfBackward() got, when this is the outermost backward.
  void RunCallbacks();

 private:
  ThreadState saved_;
  CapturedState caller_;
  std::shared_ptr<BackwardRun> run_;
  bool outermost_ = false;
  bool create_graph_;
};

// Puts this thread, which is inside of a BackwardScope or has a copy of one's state, into `state`.
// Recording is on exactly when the backward creates a graph.
void ApplyState(const CapturedState& state, Device device, bool create_graph);

}  // namespace lockstep::autograd::internal

#endif  // LOCKSTEP_AUTOGRAD_BACKWARD_SCOPE_H_
