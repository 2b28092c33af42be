// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How the states of a run are written and read, whatever its strategy: whole (--state=full, as of
// one rank alone; where parameters are sharded, gathered one at a time while they are written and
// read by ranges) or in parts (--state=sharded, a file a rank).
#ifndef LOCKSTEP_EXAMPLES_RUN_STATE_H_
#define LOCKSTEP_EXAMPLES_RUN_STATE_H_

#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/examples/train_config.h"
#include "lockstep/examples/training_strategy.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/state/training_state.h"

namespace lockstep::examples {

// Writes `state`, which has step and values, with what `strategy` and `optimizer` add to it, into
// config.out, and returns its path. Every rank of `world` calls it; all return, or all throw as
// state::SaveTrainingState or strategies::SaveShardedTraining do.
std::string SaveRunState(const TrainConfig& config, TrainingStrategy& strategy,
                         const optim::Optimizer& optimizer, state::TrainingState state,
                         comm::Communicator& world);

// Puts the state in the folder `path` back into `strategy` and `optimizer`, and returns its step
// and values. What the run cannot use, because it is set differently, is added to `begins_anew`.
state::TrainingState LoadRunState(const std::string& path, TrainingStrategy& strategy,
                                  optim::Optimizer& optimizer, comm::Communicator& world,
                                  std::vector<std::string>& begins_anew);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RUN_STATE_H_
