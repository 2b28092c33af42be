// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// States of sharded models in files, without any rank having the whole in memory.
//
//   strategies::SaveFullState(fsdp, "model.safetensors");     // one file, as of an unsharded model
//   strategies::LoadFullState(fsdp, "model.safetensors");     // on any number of ranks
//
//   strategies::SaveShardedTraining(fsdp, optimizer, root, step, values, {.keep = 3});
//   auto back = strategies::LoadLatestShardedTraining(fsdp, optimizer, root);   // as many ranks
//
// Every rank calls each function; either all return or all throw (the one that failed its error,
// the others the same, or Aborted with its message). All ranks see the paths in one file system.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_SHARDED_FILES_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_SHARDED_FILES_H_

#include <cstdint>
#include <string>

#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/state/gathered_tensors.h"
#include "lockstep/state/sharded_state.h"
#include "lockstep/state/state_folder.h"
#include "lockstep/state/state_values.h"
#include "lockstep/state/tensor_source.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"

namespace lockstep::strategies {

// All parameters and buffers under all their names, in one safetensors file that appears whole or
// not at all: the one that WriteSafetensors makes of an unsharded model's StateDict(), byte for
// byte. Rank 0 writes, with the memory of one parameter more than there is. Throws
// FailedPrecondition (cannot write), and the group's error.
void SaveFullState(FullyShardedDataParallel& fsdp, const std::string& path);

// The tensors of that file, and those of an unsharded model's optimizer in its order, for whoever
// writes them as part of something (state/group_state.h). Every rank makes and gathers them. They
// refer to `fsdp`, and to the optimizer's tensors as they are now.
state::GatheredTensors FullModelTensors(FullyShardedDataParallel& fsdp);
state::GatheredTensors FullOptimizerTensors(FullyShardedDataParallel& fsdp,
                                            const optim::Optimizer& optimizer);

// Each rank reads its own elements of such a file (or of an index of several,
// state/safetensors_source.h), or of any source with the names of an unsharded model, by ranges:
// with the memory of one piece, or one tensor that is not sharded, beside what the source takes. A
// name that only repeats a shared parameter may be missing, or has the same values. Throws
// NotFound, DataLoss (damaged), and InvalidArgument listing every missing or unknown name and every
// wrong shape, before anything has changed. The source is the same on every rank.
void LoadFullState(FullyShardedDataParallel& fsdp, const std::string& path);
void LoadFullState(FullyShardedDataParallel& fsdp, const state::TensorSource& source);

// This rank's parameters and optimizer state, with the unsharded tensors and `values` of rank 0, as
// a sharded state (state/sharded_state.h) <root>/step-<step>. Returns its path. Throws as
// state::SaveShardedState, and InvalidArgument where the optimizer has state of a parameter that is
// not sharded (an ignored one).
std::string SaveShardedTraining(FullyShardedDataParallel& fsdp, const optim::Optimizer& optimizer,
                                const std::string& root, int64_t step,
                                const state::Values& values = {},
                                const state::SaveOptions& options = {});

struct ShardedTraining {
  int64_t step = 0;
  state::Values values;
  std::string path;
};
// Puts a state back into the model and the optimizer; as many ranks as have saved it, with the same
// units. Throws as state::LoadShardedState, and InvalidArgument for the state of other units; the
// model has not changed then.
ShardedTraining LoadShardedTraining(FullyShardedDataParallel& fsdp, optim::Optimizer& optimizer,
                                    const std::string& path);
// The newest good one under `root`.
ShardedTraining LoadLatestShardedTraining(FullyShardedDataParallel& fsdp,
                                          optim::Optimizer& optimizer, const std::string& root);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_SHARDED_FILES_H_
