// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What checkpointing keeps per thread, in ThreadState::layer_state. Internal.
#ifndef LOCKSTEP_CHECKPOINT_STATE_H_
#define LOCKSTEP_CHECKPOINT_STATE_H_

#include <memory>

#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::checkpoint::internal {

// One pass of a region whose ops a policy looks at.
class OpPass {
 public:
  virtual ~OpPass() = default;
  virtual TensorList Run(const OpCall& call) = 0;
};

// Immutable once installed, as every LayerState.
struct CheckpointState : LayerState {
  bool recomputing = false;
  // Asked while the checkpoint slot's bit is on. Backward ops run under the state of their forward
  // ops, so a pass that is over is asked too, and lets every call through.
  std::shared_ptr<OpPass> pass;
};

inline constexpr DispatchLayer kCheckpointLayer = DispatchLayer::kCheckpoint;
inline constexpr int kCheckpointSlot = static_cast<int>(kCheckpointLayer);

// Null outside of regions.
inline const CheckpointState* CurrentCheckpointState() {
  return static_cast<const CheckpointState*>(
      CurrentThreadState().layer_state[kCheckpointSlot].get());
}

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_STATE_H_
