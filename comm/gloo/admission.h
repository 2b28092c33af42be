// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How rank 0 tells the ranks that connect to it from strangers: both ends of a connection prove to
// each other that they know a secret (comm/store_token.h), which never travels.
//
//   // On rank 0:
//   std::vector<UniqueFd> links = AdmitRanks(listener.get(), secret, world_size, deadline);
//   // On the others:
//   if (!ProveRank(socket.get(), secret, rank, deadline)) ...
#ifndef LOCKSTEP_COMM_GLOO_ADMISSION_H_
#define LOCKSTEP_COMM_GLOO_ADMISSION_H_

#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/socket.h"

namespace lockstep::comm::gloo {

// Admits each of the ranks 1 to world_size - 1 once and returns their connections, by rank;
// invalid ones are of ranks that did not come before the deadline (and rank 0's own). Connections
// are heard side by side: one that says nothing, or nonsense, holds up nobody and is dropped, at
// the latest when 128 newer ones have come beside those that may be ranks.
std::vector<UniqueFd> AdmitRanks(int listener, const std::string& secret, int world_size,
                                 Deadline deadline);

// The other end. False when the deadline passes, or what answers does not know the secret or does
// not want this rank.
bool ProveRank(int socket, const std::string& secret, int rank, Deadline deadline);

}  // namespace lockstep::comm::gloo

#endif  // LOCKSTEP_COMM_GLOO_ADMISSION_H_
