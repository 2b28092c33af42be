// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes shm communicators, and makes InitProcessGroup find them.

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/parallel.h"
#include "lockstep/comm/fault_injector.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/shm/process_memory.h"
#include "lockstep/comm/shm/rendezvous.h"
#include "lockstep/comm/shm/shm_communicator.h"
#include "lockstep/comm/shm/thread_memory.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm::shm {
namespace {

// The first meeting of all members: after it the group stands.
void Assemble(Member& member, const ProcessGroupOptions& options, Deadline deadline) {
  try {
    member.Begin(-1, Signature{}, deadline.Remaining());  // the collective before number 0
    member.MeetPosts();
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat("InitProcessGroup: rank ", options.rank, " of group \"",
                                         options.group_name, "\""));
  }
}

bool MaySpin(const ProcessGroupOptions& options) {
  return std::max(options.world_size, options.local_world_size) <= HardwareThreads();
}

void Configure(Member& member, const ProcessGroupOptions& options) {
  member.set_verifies_payload(options.verify_payload);
  member.set_faults(options.fault_injector.get());
}

GroupParts MakeThreadParts(const ProcessGroupOptions& options, const std::string& key,
                           LocalStore& store) {
  const std::shared_ptr<ThreadGroup> group = store.Share<ThreadGroup>(
      key, [&] { return std::make_shared<ThreadGroup>(options.world_size); });
  GroupParts parts;
  parts.may_spin = MaySpin(options);
  parts.control_memory = group;
  parts.memory = std::make_unique<ThreadMemory>(
      group, options.rank, options.peer_memory_access == PeerMemoryAccess::kStaged);
  parts.member = std::make_unique<Member>(group->control(), options.rank, options.group_name,
                                          nullptr, parts.may_spin);
  Configure(*parts.member, options);
  return parts;
}

// Whether this rank can read a number that each peer has put into its private memory.
bool CanReadPeers(const Member& member, ProcessMemory& memory) {
  for (int peer = 0; peer < member.size(); ++peer) {
    if (peer == member.rank()) continue;
    const RankCell& cell = member.control().rank(peer);
    uint64_t value = 0;
    try {
      memory.Read(peer, cell.probe_address, &value, sizeof(value));
    } catch (const Error&) {
      return false;
    }
    if (value != cell.probe_value) return false;
  }
  return true;
}

// Decides, together, whether private memory is read directly.
void ProbeDirectReads(Member& member, ProcessMemory& memory, const ProcessGroupOptions& options) {
  const bool wanted = options.peer_memory_access != PeerMemoryAccess::kStaged;
  // Where the kernel lets processes trace only their descendants, this permits the peers. Without
  // that restriction the call does not exist, and is not needed.
  if (wanted) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  RankCell& mine = member.control().rank(member.rank());
  const uint64_t probe = static_cast<uint64_t>(MonotonicNanoseconds()) * 2654435761u +
                         static_cast<uint64_t>(member.rank()) + 1;
  mine.probe_value = probe;
  mine.probe_address = reinterpret_cast<uint64_t>(&probe);
  member.Signal();
  member.AwaitAll();
  mine.reads_all_peers = wanted && CanReadPeers(member, memory) ? 1 : 0;
  member.Signal();
  member.AwaitAll();
  bool all = true;
  for (int peer = 0; peer < member.size(); ++peer) {
    const bool reads = member.control().rank(peer).reads_all_peers != 0;
    if (!reads && options.peer_memory_access == PeerMemoryAccess::kDirect) {
      throw FailedPreconditionError(
          absl::StrCat("InitProcessGroup: rank ", peer, " of group \"", options.group_name,
                       "\" cannot read its peers' memory (process_vm_readv is forbidden here, or "
                       "it was told to stage): use PeerMemoryAccess::kAutomatic"));
    }
    all = all && reads;
  }
  memory.set_can_read(all);
}

}  // namespace

std::shared_ptr<Communicator> MakeShmCommunicator(const ProcessGroupOptions& options) {
  if (!options.bind_address.empty() || options.host_grouping != HostGrouping::kAutomatic) {
    throw InvalidArgumentError(
        "InitProcessGroup: bind_address and host_grouping are for ranks on several hosts, and the "
        "shm backend connects ranks of one: use the gloo backend");
  }
  return MakeShmCommunicator(options, GroupKey(options, Deadline::After(options.timeout)));
}

std::shared_ptr<Communicator> MakeShmCommunicator(const ProcessGroupOptions& options,
                                                  const std::string& key) {
  const Deadline deadline = Deadline::After(options.timeout);
  if (auto* local = dynamic_cast<LocalStore*>(options.store.get())) {
    GroupParts parts = MakeThreadParts(options, key, *local);
    parts.key = key;
    Assemble(*parts.member, options, deadline);
    return std::make_shared<ShmCommunicator>(options, std::move(parts));
  }
  ProcessMeeting meeting = MeetProcesses(options, key, deadline);
  auto memory = std::make_unique<ProcessMemory>(meeting.links, options.rank);
  auto control = std::make_shared<Mapping>(std::move(meeting.control));
  GroupParts parts;
  parts.may_spin = MaySpin(options);
  parts.key = key;
  parts.control_memory = control;
  parts.liveness = meeting.links;
  parts.member =
      std::make_unique<Member>(ControlBlock(control->data(), options.world_size), options.rank,
                               options.group_name, meeting.links.get(), parts.may_spin);
  Configure(*parts.member, options);
  Assemble(*parts.member, options, deadline);
  ProbeDirectReads(*parts.member, *memory, options);
  parts.memory = std::move(memory);
  return std::make_shared<ShmCommunicator>(options, std::move(parts));
}

namespace {

[[maybe_unused]] const bool registered = [] {
  RegisterBackend("shm",
                  [](const ProcessGroupOptions& options) { return MakeShmCommunicator(options); });
  return true;
}();

}  // namespace
}  // namespace lockstep::comm::shm
