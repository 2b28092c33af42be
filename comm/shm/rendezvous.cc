// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/rendezvous.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/host_id.h"
#include "lockstep/comm/shm/control_block.h"
#include "lockstep/comm/socket.h"

namespace lockstep::comm::shm {
namespace {

constexpr size_t kSecretBytes = 32;  // RandomName()

// The first message on a connection.
struct Hello {
  char secret[kSecretBytes];
  int32_t rank = -1;
};

std::string AddressKey(const std::string& key, int rank) {
  return absl::StrCat(key, "/address/", rank);
}

[[noreturn]] void ThrowMissing(const ProcessGroupOptions& options, std::vector<int> missing) {
  throw DeadlineExceededError(absl::StrCat(
      "InitProcessGroup: rank ", options.rank, " of group \"", options.group_name,
      "\": ", missing.size() == 1 ? "rank " : "ranks ", absl::StrJoin(missing, ", "), " of ",
      options.world_size, " did not come within ", absl::FormatDuration(options.timeout),
      " (store: ", options.store->Describe(), ")"));
}

// Names of all ranks' listening sockets.
std::vector<std::string> ExchangeAddresses(const ProcessGroupOptions& options,
                                           const std::string& key, const std::string& mine,
                                           Deadline deadline) {
  const std::string host = options.host_id.empty() ? HostId() : options.host_id;
  options.store->Set(AddressKey(key, options.rank), absl::StrCat(mine, "\n", host), deadline);
  std::vector<std::string> names;
  std::vector<int> missing;
  for (int rank = 0; rank < options.world_size; ++rank) {
    try {
      const std::pair<std::string, std::string> parts = absl::StrSplit(
          options.store->Get(AddressKey(key, rank), deadline), absl::MaxSplits('\n', 1));
      if (parts.second != host) {
        throw InvalidArgumentError(
            absl::StrCat("InitProcessGroup: the shm backend connects ranks of one host, but rank ",
                         options.rank, " is on ", host, " and rank ", rank, " on ", parts.second));
      }
      names.push_back(parts.first);
    } catch (const Error& error) {
      if (error.code() != absl::StatusCode::kDeadlineExceeded) throw;
      missing.push_back(rank);
    }
  }
  if (!missing.empty()) ThrowMissing(options, missing);
  return names;
}

pid_t PeerPid(int socket, uid_t* user) {
  ucred credentials = {};
  socklen_t length = sizeof(credentials);
  getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length);
  *user = credentials.uid;
  return credentials.pid;
}

// Accepts the ranks above this one. Whoever else connects is dropped: abstract names are visible to
// all users of the host, the secret only to those who can ask the store.
void AcceptPeers(const ProcessGroupOptions& options, int listener, const std::string& secret,
                 Deadline deadline, std::vector<PeerLinks::Link>* links) {
  int expected = options.world_size - 1 - options.rank;
  while (expected > 0) {
    UniqueFd socket = Accept(listener, deadline);
    if (!socket.valid()) {
      std::vector<int> missing;
      for (int rank = options.rank + 1; rank < options.world_size; ++rank) {
        if (!(*links)[static_cast<size_t>(rank)].socket.valid()) missing.push_back(rank);
      }
      ThrowMissing(options, missing);
    }
    uid_t user = 0;
    const pid_t pid = PeerPid(socket.get(), &user);
    if (user != geteuid()) continue;
    Hello hello;
    const Deadline patience = std::min(deadline, Deadline::After(absl::Seconds(5)));
    if (ReceiveAll(socket.get(), reinterpret_cast<char*>(&hello), sizeof(hello), patience) !=
            IoResult::kOk ||
        secret != absl::string_view(hello.secret, kSecretBytes) || hello.rank <= options.rank ||
        hello.rank >= options.world_size) {
      continue;
    }
    PeerLinks::Link& link = (*links)[static_cast<size_t>(hello.rank)];
    if (link.socket.valid()) continue;
    link = {std::move(socket), pid};
    --expected;
  }
}

void ConnectPeers(const ProcessGroupOptions& options, const std::vector<std::string>& names,
                  const std::string& secret, Deadline deadline,
                  std::vector<PeerLinks::Link>* links) {
  for (int rank = 0; rank < options.rank; ++rank) {
    UniqueFd socket;
    try {
      socket = ConnectAbstract(names[static_cast<size_t>(rank)], deadline);
    } catch (const Error& error) {
      throw error.WithContext(absl::StrCat(
          "InitProcessGroup: rank ", options.rank, " cannot reach rank ", rank, " of group \"",
          options.group_name, "\" (has it died, or another network namespace?)"));
    }
    Hello hello;
    std::memcpy(hello.secret, secret.data(), kSecretBytes);
    hello.rank = options.rank;
    SendAll(socket.get(), absl::string_view(reinterpret_cast<const char*>(&hello), sizeof(hello)),
            deadline);
    uid_t user = 0;
    const pid_t pid = PeerPid(socket.get(), &user);
    (*links)[static_cast<size_t>(rank)] = {std::move(socket), pid};
  }
}

Mapping ShareControlBlock(const ProcessGroupOptions& options, const PeerLinks& links,
                          Deadline deadline) {
  const int64_t bytes = ControlBlock::Bytes(options.world_size);
  const absl::string_view greeting = "control!";
  if (options.rank == 0) {
    const UniqueFd segment = MakeSegment(bytes, /*reserve=*/false);
    for (int rank = 1; rank < options.world_size; ++rank) {
      if (SendMessage(links.socket(rank), greeting, segment.get(), deadline) != IoResult::kOk) {
        throw UnavailableError(absl::StrCat("InitProcessGroup: rank ", rank, " of group \"",
                                            options.group_name, "\" has died"));
      }
    }
    return Mapping::OfSegment(segment.get(), bytes);
  }
  char data[8];
  UniqueFd segment;
  const IoResult result = ReceiveMessage(links.socket(0), data, sizeof(data), &segment, deadline);
  if (result == IoResult::kDeadline) ThrowMissing(options, {0});
  if (result != IoResult::kOk || SegmentBytes(segment.get()) < bytes) {
    throw UnavailableError(
        absl::StrCat("InitProcessGroup: rank 0 of group \"", options.group_name, "\" has died"));
  }
  return Mapping::OfSegment(segment.get(), bytes);
}

}  // namespace

std::string GroupKey(const ProcessGroupOptions& options, Deadline deadline) {
  const std::string prefix = absl::StrCat("shm/", options.group_name);
  const int64_t number =
      options.store->Add(absl::StrCat(prefix, "/made/", options.rank), 1, deadline);
  return absl::StrCat(prefix, "/", number);
}

ProcessMeeting MeetProcesses(const ProcessGroupOptions& options, const std::string& key,
                             Deadline deadline) {
  const std::string name = absl::StrCat("lockstep-", RandomName());
  const UniqueFd listener = ListenAbstract(name);
  const std::string secret_key = absl::StrCat(key, "/secret");
  if (options.rank == 0) options.store->Set(secret_key, RandomName(), deadline);
  const std::vector<std::string> names = ExchangeAddresses(options, key, name, deadline);
  const std::string secret = options.store->Get(secret_key, deadline);

  std::vector<PeerLinks::Link> links(static_cast<size_t>(options.world_size));
  ConnectPeers(options, names, secret, deadline, &links);
  AcceptPeers(options, listener.get(), secret, deadline, &links);
  ProcessMeeting meeting;
  meeting.links = std::make_shared<PeerLinks>(std::move(links));
  meeting.control = ShareControlBlock(options, *meeting.links, deadline);
  return meeting;
}

}  // namespace lockstep::comm::shm
