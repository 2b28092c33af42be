// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes gloo communicators, and makes InitProcessGroup find them.

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/comm/fault_injector.h"
#include "lockstep/comm/gloo/gloo_communicator.h"
#include "lockstep/comm/gloo/meeting.h"
#include "lockstep/comm/gloo/next_fault.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm::gloo {
namespace {

bool IsHierarchical(const ProcessGroupOptions& options, const Meeting& meeting,
                    const Placement& placement) {
  const bool shared = placement.hosts.size() < meeting.hosts.size();
  if (!shared || options.host_grouping == HostGrouping::kFlat) return false;
  if (!meeting.all_have_shm && options.host_grouping == HostGrouping::kHierarchical) {
    throw InvalidArgumentError(
        "ranks share hosts, and the backend \"shm\" is not linked into the program of each: add "
        "//comm/shm to its deps, or make the group flat");
  }
  return meeting.all_have_shm;
}

// Names of groups are limited, keys are not.
std::string LocalGroupName(const std::string& key, int host) {
  return absl::StrCat("gloo/", absl::Hex(Hash64(key), absl::kZeroPad16), "/host", host);
}

std::shared_ptr<Communicator> MakeLocalGroup(const ProcessGroupOptions& options,
                                             const std::string& key, const Placement& placement,
                                             std::shared_ptr<FaultInjector> faults,
                                             Deadline deadline) {
  ProcessGroupOptions local = options;
  local.backend = "shm";
  local.group_name = LocalGroupName(key, placement.my_host);
  local.rank = local.local_rank = placement.my_place;
  local.world_size = local.local_world_size = static_cast<int>(placement.mine().size());
  local.master_address = local.token = local.rendezvous = local.bind_address = "";
  local.master_port = 0;
  local.host_grouping = HostGrouping::kAutomatic;
  local.serve_store = true;
  local.world_ranks.clear();
  for (const int rank : placement.mine()) {
    local.world_ranks.push_back(
        options.world_ranks.empty() ? rank : options.world_ranks[static_cast<size_t>(rank)]);
  }
  local.fault_injector = std::move(faults);
  local.flight_recorder = {};  // the group of all hosts records the calls
  local.timeout = deadline.Remaining();
  return InitProcessGroup(local);
}

std::vector<int> AllRanks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void AddCollectives(const ProcessGroupOptions& options, const Meeting& meeting, Deadline deadline,
                    GroupParts* parts) {
  Placement placement(meeting.hosts, options.rank);
  if (!IsHierarchical(options, meeting, placement)) {
    parts->collectives = std::make_unique<TcpCollectives>(
        parts->exchange.get(), AllRanks(options.world_size), options.rank);
    return;
  }
  if (options.fault_injector != nullptr) parts->next_fault = std::make_shared<NextFault>();
  parts->collectives = std::make_unique<TcpCollectives>(parts->exchange.get(), placement.Leaders(),
                                                        placement.my_host);
  std::shared_ptr<Communicator> local =
      MakeLocalGroup(options, parts->key, placement, parts->next_fault, deadline);
  parts->hierarchy = std::make_unique<Hierarchy>(std::move(placement), std::move(local),
                                                 parts->collectives.get(), parts->control.get());
}

GroupParts MakeParts(const ProcessGroupOptions& options, const std::string& key,
                     Deadline deadline) {
  Meeting meeting = MeetRanks(options, key, deadline);
  GroupParts parts;
  parts.key = key;
  const int size = options.world_size;
  GlooConnections connections;
  if (size > 1) {
    connections = ConnectGloo(*options.store, key, meeting.address, options.rank, size, deadline);
  }
  parts.control =
      std::make_unique<Control>(std::move(meeting.links), options.rank, size, options.group_name);
  parts.exchange = std::make_unique<Exchange>(std::move(connections), parts.control.get());
  parts.exchange->set_verifies_payload(options.verify_payload);
  parts.transfers = std::make_unique<Transfers>(parts.exchange.get(), parts.control.get(),
                                                options.fault_injector.get());
  AddCollectives(options, meeting, deadline, &parts);
  parts.control->OnInterrupt([exchange = parts.exchange.get(), transfers = parts.transfers.get(),
                              hierarchy = parts.hierarchy.get()] {
    exchange->Interrupt();
    transfers->Interrupt();
    if (hierarchy != nullptr) hierarchy->Interrupt();
  });
  return parts;
}

}  // namespace

std::shared_ptr<Communicator> MakeGlooCommunicator(const ProcessGroupOptions& options) {
  if (options.peer_memory_access != PeerMemoryAccess::kAutomatic) {
    throw InvalidArgumentError(
        "InitProcessGroup: peer_memory_access is the shm backend's: leave it automatic for gloo");
  }
  return MakeGlooCommunicator(options, GroupKey(options, Deadline::After(options.timeout)));
}

std::shared_ptr<Communicator> MakeGlooCommunicator(const ProcessGroupOptions& options,
                                                   const std::string& key) {
  const Deadline deadline = Deadline::After(options.timeout);
  GroupParts parts;
  try {
    parts = MakeParts(options, key, deadline);
    parts.control->Start();
    try {
      parts.control->Meet({options.rank, -1, Signature{}, {}}, deadline.Remaining());
    } catch (...) {
      parts.control->Stop();
      parts.control->Leave();
      throw;
    }
  } catch (const Error& error) {
    if (absl::StartsWith(error.message(), "InitProcessGroup")) throw;
    throw error.WithContext(absl::StrCat("InitProcessGroup: rank ", options.rank, " of group \"",
                                         options.group_name, "\""));
  }
  return std::make_shared<GlooCommunicator>(options, std::move(parts));
}

namespace {

[[maybe_unused]] const bool registered = [] {
  RegisterBackend("gloo",
                  [](const ProcessGroupOptions& options) { return MakeGlooCommunicator(options); });
  return true;
}();

}  // namespace
}  // namespace lockstep::comm::gloo
