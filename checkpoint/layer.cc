// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// The checkpoint slot of dispatch: hands op calls of regions with a policy to the region's pass.

#include <memory>

#include "lockstep/checkpoint/state.h"
#include "lockstep/tensor/dispatch.h"

namespace lockstep::checkpoint::internal {
namespace {

TensorList CheckpointLayer(const OpCall& call) {
  const CheckpointState* state = CurrentCheckpointState();
  if (state == nullptr || state->pass == nullptr) return DispatchBelow(kCheckpointLayer, call);
  // The call may replace the thread's state.
  const std::shared_ptr<OpPass> pass = state->pass;
  return pass->Run(call);
}

struct Registration {
  Registration() { RegisterLayer(kCheckpointLayer, &CheckpointLayer, /*on_by_default=*/false); }
};
const Registration registration;

}  // namespace
}  // namespace lockstep::checkpoint::internal
