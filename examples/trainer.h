// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank of a training run.
#ifndef LOCKSTEP_EXAMPLES_TRAINER_H_
#define LOCKSTEP_EXAMPLES_TRAINER_H_

#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/examples/train_config.h"

namespace lockstep::examples {

// Trains as `config` (resolved) says; every rank of `world` calls it. Rank 0 prints and writes the
// states. Returns when all steps are done, or when a stop signal reached any rank and the state has
// been saved. Throws Error on every rank when one of them failed.
void Train(const TrainConfig& config, std::shared_ptr<comm::Communicator> world);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_TRAINER_H_
