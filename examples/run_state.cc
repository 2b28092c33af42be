// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/run_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/examples/find_state.h"
#include "lockstep/state/group_state.h"
#include "lockstep/state/safetensors_source.h"
#include "lockstep/state/state_writer.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharded_files.h"

namespace lockstep::examples {

std::string SaveRunState(const TrainConfig& config, TrainingStrategy& strategy,
                         const optim::Optimizer& optimizer, state::TrainingState state,
                         comm::Communicator& world) {
  const state::SaveOptions options{.keep = config.keep};
  strategies::FullyShardedDataParallel* const fsdp = strategy.fsdp();
  if (fsdp == nullptr) {
    strategy.Save(optimizer, state);
    return state::SaveTrainingState(config.out, state, world, options);
  }
  if (config.state_layout == "sharded") {
    return strategies::SaveShardedTraining(*fsdp, optimizer, config.out, state.step, state.values,
                                           options);
  }
  TrainingStrategy::PutOptimizer({{}, optimizer.SaveState().numbers}, state);
  return state::SaveTrainingState(
      config.out, state, world, options,
      {strategies::FullModelTensors(*fsdp), strategies::FullOptimizerTensors(*fsdp, optimizer)});
}

state::TrainingState LoadRunState(const std::string& path, TrainingStrategy& strategy,
                                  optim::Optimizer& optimizer, comm::Communicator& world,
                                  std::vector<std::string>& begins_anew) {
  strategies::FullyShardedDataParallel* const fsdp = strategy.fsdp();
  state::TrainingState state;
  if (IsShardedState(path)) {
    if (fsdp == nullptr) {
      throw InvalidArgumentError(absl::StrCat(
          "'", path, "' has a part for each rank, and this strategy shards no parameters"));
    }
    strategies::ShardedTraining back = strategies::LoadShardedTraining(*fsdp, optimizer, path);
    state.step = back.step;
    state.values = std::move(back.values);
    return state;
  }
  const bool whole = fsdp == nullptr && !strategy.loads_by_name();
  state = state::LoadTrainingState(path, world.rank(), {.tensors = whole});
  if (whole) {
    strategy.Load(state, optimizer, begins_anew);
    return state;
  }
  if (!state.strategy.empty() || state.ranks > 0) {
    begins_anew.push_back("what the strategy before kept for itself");
  }
  const std::string model = absl::StrCat(path, "/", state::kModelFile);
  const state::SafetensorsSource moments(absl::StrCat(path, "/", state::kOptimizerFile));
  if (fsdp == nullptr) {
    strategy.LoadByName(state::SafetensorsSource(model), moments, state, optimizer);
    return state;
  }
  strategies::LoadFullState(*fsdp, model);
  fsdp->LoadFullOptimizerState(optimizer, moments, TrainingStrategy::GetOptimizer(state).numbers);
  return state;
}

}  // namespace lockstep::examples
