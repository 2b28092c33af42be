// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How ranks of several hosts that share a store become a group: who is on which host, and the
// control connections.
#ifndef LOCKSTEP_COMM_GLOO_MEETING_H_
#define LOCKSTEP_COMM_GLOO_MEETING_H_

#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/socket.h"

namespace lockstep::comm::gloo {

struct Meeting {
  std::vector<UniqueFd> links;     // as Control wants them
  std::vector<std::string> hosts;  // by rank; equal for ranks on one host
  bool all_have_shm = false;       // whether the backend is linked into every rank's program
  std::string address;             // of this host, for listening
};

// Prefix of this group's keys. Each rank counts the groups of one name that it makes, so that a
// later group does not find the addresses of an earlier one.
std::string GroupKey(const ProcessGroupOptions& options, Deadline deadline);

// The ends of a control connection prove to each other that they know a secret that rank 0 has put
// into the store, as a store and its clients do with its token (comm/store_token.h). Strangers that
// connect are dropped. Throws DeadlineExceeded (naming the ranks that did not come),
// InvalidArgument (no address that the other hosts could reach: give ProcessGroupOptions
// ::bind_address), Unavailable.
Meeting MeetRanks(const ProcessGroupOptions& options, const std::string& key, Deadline deadline);

}  // namespace lockstep::comm::gloo

#endif  // LOCKSTEP_COMM_GLOO_MEETING_H_
