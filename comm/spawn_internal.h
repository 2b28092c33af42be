// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the two ways to start ranks have in common.
#ifndef LOCKSTEP_COMM_SPAWN_INTERNAL_H_
#define LOCKSTEP_COMM_SPAWN_INTERNAL_H_

#include <functional>

#include "absl/strings/string_view.h"
#include "lockstep/comm/spawn.h"

namespace lockstep::comm::internal {

// Throws InvalidArgument, naming `call`.
void CheckSpawnArguments(absl::string_view call, int n, const SpawnOptions& options);

// Prepares this thread's state, runs the function, and returns how it ended. Prints what was
// thrown.
RankExit RunRank(const std::function<void(RankContext&)>& function, RankContext& context,
                 int threads_per_rank);

SpawnResult SpawnProcesses(int n, RankFunction function, const SpawnOptions& options);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_SPAWN_INTERNAL_H_
