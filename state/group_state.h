// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Training states that the ranks of a group write together, where each has something of its own:
// the error that its compressed gradients left, its optimizer's moments, its shard.
//
//   state::TrainingState state;             // on rank 0 everything; on the others only `own`
//   state.own = {{"error.wte", error}};
//   state::SaveTrainingState(root, state, *world, {.keep = 3});
//   ...
//   state = state::LoadTrainingState(path, world->rank());
//
// Each rank writes its file into the folder that rank 0 has made, so nothing is gathered; they need
// a file system that all see. Where no rank has anything of its own only rank 0 writes.
//
// Parameters and optimizer state that are spread over the ranks are gathered while they are written
// (GatheredState), one tensor at a time; the files are those of whole ones.
#ifndef LOCKSTEP_STATE_GROUP_STATE_H_
#define LOCKSTEP_STATE_GROUP_STATE_H_

#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/state/gathered_tensors.h"
#include "lockstep/state/training_state.h"

namespace lockstep::state {

// In place of TrainingState's `model` and `optimizer`, which are empty then on every rank.
struct GatheredState {
  GatheredTensors model;
  GatheredTensors optimizer;
};

// SaveTrainingState by all ranks of `group`; every rank calls it and gets the path. Of the state
// only `own` counts on ranks other than 0. When a rank fails, all throw and nothing is left: that
// rank what SaveTrainingState throws, the others Aborted with its message.
std::string SaveTrainingState(const std::string& root, const TrainingState& state,
                              comm::Communicator& group, const SaveOptions& options = {},
                              const GatheredState& gathered = {});

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_GROUP_STATE_H_
