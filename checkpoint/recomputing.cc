// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/recomputing.h"

#include "lockstep/checkpoint/state.h"

namespace lockstep::checkpoint {

bool Recomputing() {
  const internal::CheckpointState* state = internal::CurrentCheckpointState();
  return state != nullptr && state->recomputing;
}

}  // namespace lockstep::checkpoint
