// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// train_gpt under a pipeline: stages as threads of one process, or a rank a stage, the latter with
// replicas.
#ifndef LOCKSTEP_EXAMPLES_PIPELINE_STRATEGY_H_
#define LOCKSTEP_EXAMPLES_PIPELINE_STRATEGY_H_

#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/examples/train_config.h"
#include "lockstep/examples/training_strategy.h"
#include "lockstep/models/gpt2.h"

namespace lockstep::examples {

// `model` is on meta where config.RankPerStage(): each rank makes the parameters of its own stages.
// Every rank of `world` calls it.
std::unique_ptr<TrainingStrategy> MakePipelineStrategy(const TrainConfig& config,
                                                       std::shared_ptr<models::Gpt2> model,
                                                       std::shared_ptr<comm::Communicator> world);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PIPELINE_STRATEGY_H_
