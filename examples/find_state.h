// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which state a run goes on from.
#ifndef LOCKSTEP_EXAMPLES_FIND_STATE_H_
#define LOCKSTEP_EXAMPLES_FIND_STATE_H_

#include <string>
#include <vector>

#include "lockstep/state/training_state.h"

namespace lockstep::examples {

struct FoundState {
  state::TrainingState state;  // step and values; no tensors
  std::string path;
  bool sharded = false;              // each rank's part in a file of its own
  std::vector<std::string> skipped;  // why newer ones are not good
};

// Whether the state in the folder `path` is in parts.
bool IsShardedState(const std::string& path);

// `resume`: a state's folder, a run's folder, or "latest": the newest good state of the run in
// `root`, or of the newest run below it. All files are verified. Throws NotFound, DataLoss.
FoundState FindState(const std::string& resume, const std::string& root);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FIND_STATE_H_
