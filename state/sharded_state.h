// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A state that is spread over ranks: each rank writes and reads its own pieces of tensors, and no
// rank ever has all of them.
//
//   <root>/step-00002200/
//     manifest.json              which file has what (sharded_manifest.h), and numbers and texts
//     rank-00000.safetensors     the pieces of rank 0, each in one dimension, ...
//
//   state::ShardingRank me{.rank = world->rank(), .world_size = world->size(),
//                          .agree = [&](bool good) { return AllOf(*world, good); }};
//   std::vector<state::Shard> shards = {{"wte.weight", {256, 64}, 0, 8192, piece}, ...};
//   state::SaveShardedState(root, 2200, shards, {{"schedule.step", int64_t{2200}}}, me);
//   state::ShardedState back = state::LoadLatestShardedState(root, me).state;
//
// All ranks see the root in one file system. The folder appears when all files are durable, or not
// at all: a rank that fails, or is killed, at any moment leaves the states before it. Every rank
// calls the same functions; either all return or all throw.
#ifndef LOCKSTEP_STATE_SHARDED_STATE_H_
#define LOCKSTEP_STATE_SHARDED_STATE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/state/sharded_manifest.h"
#include "lockstep/state/state_folder.h"
#include "lockstep/state/state_values.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {

// A piece of a tensor: its elements [begin, end) in row-major order.
struct Shard {
  std::string name;
  Shape full_shape;  // of the whole tensor
  int64_t begin = 0;
  int64_t end = 0;
  Tensor tensor;  // end - begin elements; when saving of any shape, when loaded of one dimension
};

struct ShardingRank {
  int rank = 0;
  int world_size = 1;
  // Returns when every rank has called it: whether `good` was true on all of them (an AllReduce of
  // the minimum). What it throws ends the call on this rank. Null for one rank.
  std::function<bool(bool good)> agree = nullptr;
};

// Writes <root>/step-<step>, replacing one of the same step at once, and returns its path. `shards`
// are this rank's, at most one of a tensor; every element of a tensor is with at least one rank,
// and may be with several. `values` are rank 0's. Takes the memory of one piece. Throws
// InvalidArgument (shards that do not fit their tensors or, on the others' ranks, each other; a
// rank outside of the world; no `agree`), FailedPrecondition (cannot write), and Aborted where it
// was another rank that failed.
std::string SaveShardedState(const std::string& root, int64_t step, absl::Span<const Shard> shards,
                             const Values& values, const ShardingRank& rank,
                             const SaveOptions& options = {});

struct ShardedState {
  int64_t step = 0;
  Values values;
  std::vector<Shard> shards;  // this rank's, in the manifest's order
};
// Reads and verifies this rank's pieces, and that the other ranks' files are there. Throws
// NotFound; DataLoss naming the file: foreign, damaged, truncated, missing, or of another step;
// InvalidArgument when another number of ranks has saved it; Aborted where it was another rank that
// failed.
ShardedState LoadShardedState(const std::string& path, const ShardingRank& rank);

struct LoadedShardedState {
  ShardedState state;
  std::string path;
  std::vector<std::string> skipped;  // one message for each newer state that was not good
};
// The newest state under `root` that is good on every rank. Throws NotFound when there is none,
// with the reasons, and InvalidArgument when another number of ranks has saved a newer one.
LoadedShardedState LoadLatestShardedState(const std::string& root, const ShardingRank& rank);

// The manifest of the state in the folder `path`, verified; for tools, and for who reads pieces of
// other ranks with SafetensorsReader. Throws NotFound, DataLoss.
ShardedManifest ReadShardedManifest(const std::string& path);
// The same, with the file of every rank compared with its checksum.
ShardedManifest VerifyShardedState(const std::string& path);

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_SHARDED_STATE_H_
