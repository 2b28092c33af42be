// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How processes of one host that share a store become a group: sockets between all of them, and a
// control block.
#ifndef LOCKSTEP_COMM_SHM_RENDEZVOUS_H_
#define LOCKSTEP_COMM_SHM_RENDEZVOUS_H_

#include <memory>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/shm/process_memory.h"
#include "lockstep/comm/shm/segment.h"

namespace lockstep::comm::shm {

struct ProcessMeeting {
  std::shared_ptr<PeerLinks> links;
  Mapping control;
};

// Prefix of this group's keys. Each rank counts the groups of one name that it makes, so that a
// later group does not find the addresses of an earlier one.
std::string GroupKey(const ProcessGroupOptions& options, Deadline deadline);

// Throws DeadlineExceeded (naming the ranks that did not come), InvalidArgument (ranks on several
// hosts, named), Unavailable.
ProcessMeeting MeetProcesses(const ProcessGroupOptions& options, const std::string& key,
                             Deadline deadline);

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_RENDEZVOUS_H_
