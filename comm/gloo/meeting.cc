// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/meeting.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/gloo/admission.h"
#include "lockstep/comm/host_id.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm::gloo {
namespace {

std::string Who(const ProcessGroupOptions& options) {
  return absl::StrCat("InitProcessGroup: rank ", options.rank, " of group \"", options.group_name,
                      "\"");
}

[[noreturn]] void ThrowMissing(const ProcessGroupOptions& options,
                               const std::vector<int>& missing) {
  throw DeadlineExceededError(absl::StrCat(
      Who(options), ": ", missing.size() == 1 ? "rank " : "ranks ", absl::StrJoin(missing, ", "),
      " of ", options.world_size, " did not come within ", absl::FormatDuration(options.timeout),
      " (store: ", options.store->Describe(), ")"));
}

// What each rank says about itself.
struct Facts {
  std::string host;
  std::string machine;
  bool has_shm = false;
  std::string grouping;
  std::string verifies;
};

// Ranks that disagree would exchange pieces of different sizes, for which Gloo ends the process.
void CheckSameOptions(const ProcessGroupOptions& options, const std::vector<Facts>& facts) {
  for (size_t rank = 1; rank < facts.size(); ++rank) {
    if (facts[rank].grouping != facts[0].grouping) {
      throw InvalidArgumentError(absl::StrCat(
          Who(options), ": rank 0 has set host_grouping to ", facts[0].grouping, ", and rank ",
          rank, " to ", facts[rank].grouping, ": it must be the same on all ranks"));
    }
    if (facts[rank].verifies != facts[0].verifies) {
      throw InvalidArgumentError(absl::StrCat(
          Who(options), ": verify_payload is ", facts[0].verifies, " on rank 0 and ",
          facts[rank].verifies, " on rank ", rank, ": it must be the same on all ranks"));
    }
  }
}

absl::string_view GroupingName(HostGrouping grouping) {
  switch (grouping) {
    case HostGrouping::kAutomatic:
      return "automatic";
    case HostGrouping::kFlat:
      return "flat";
    case HostGrouping::kHierarchical:
      return "hierarchical";
  }
  return "?";
}

std::vector<Facts> ExchangeFacts(const ProcessGroupOptions& options, const std::string& key,
                                 Deadline deadline) {
  const auto fact_key = [&](int rank) { return absl::StrCat(key, "/facts/", rank); };
  const std::string machine = HostId();
  const std::string& host = options.host_id.empty() ? machine : options.host_id;
  options.store->Set(
      fact_key(options.rank),
      absl::StrCat(IsBackendLinked("shm") ? 1 : 0, "\n", GroupingName(options.host_grouping), "\n",
                   options.verify_payload ? "on" : "off", "\n", machine, "\n", host),
      deadline);
  std::vector<Facts> facts;
  std::vector<int> missing;
  for (int rank = 0; rank < options.world_size; ++rank) {
    try {
      const std::vector<std::string> lines =
          absl::StrSplit(options.store->Get(fact_key(rank), deadline), absl::MaxSplits('\n', 4));
      if (lines.size() != 5) throw DataLossError(absl::StrCat(Who(options), ": a damaged store"));
      facts.push_back({lines[4], lines[3], lines[0] == "1", lines[1], lines[2]});
    } catch (const Error& error) {
      if (error.code() != absl::StatusCode::kDeadlineExceeded) throw;
      missing.push_back(rank);
    }
  }
  if (!missing.empty()) ThrowMissing(options, missing);
  CheckSameOptions(options, facts);
  return facts;
}

// A numeric address, or "".
std::string AddressText(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = {};
  if (getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

bool IsLoopback(const std::string& address) {
  return address.empty() || address.rfind("127.", 0) == 0 || address == "::1";
}

// The address from which this host would send to `to`: nothing is sent.
std::string RouteTo(const std::string& to) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(to.c_str(), "9", &hints, &found) != 0) return "";
  std::string address;
  for (const addrinfo* info = found; info != nullptr && address.empty(); info = info->ai_next) {
    const UniqueFd fd(socket(info->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage mine = {};
    socklen_t length = sizeof(mine);
    if (!fd.valid() || connect(fd.get(), info->ai_addr, info->ai_addrlen) != 0 ||
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&mine), &length) != 0) {
      continue;
    }
    address = AddressText(reinterpret_cast<const sockaddr*>(&mine), length);
  }
  freeaddrinfo(found);
  return address;
}

std::string ChooseAddress(const ProcessGroupOptions& options, const std::vector<Facts>& facts) {
  if (!options.bind_address.empty()) return options.bind_address;
  const bool one_machine = std::all_of(facts.begin(), facts.end(), [&](const Facts& fact) {
    return fact.machine == facts[0].machine;
  });
  if (one_machine) return "127.0.0.1";
  std::string address;
  if (!options.master_address.empty()) address = RouteTo(options.master_address);
  if (IsLoopback(address)) {
    char name[256] = {};
    gethostname(name, sizeof(name) - 1);
    address = RouteTo(name);
  }
  if (!IsLoopback(address)) return address;
  throw InvalidArgumentError(
      absl::StrCat(Who(options),
                   ": the ranks are on several hosts, and no address is known at "
                   "which the others reach this one: set bind_address"));
}

// ---- Control connections ----

std::vector<UniqueFd> AcceptRanks(const ProcessGroupOptions& options, int listener,
                                  const std::string& secret, Deadline deadline) {
  std::vector<UniqueFd> links = AdmitRanks(listener, secret, options.world_size, deadline);
  std::vector<int> missing;
  for (int rank = 1; rank < options.world_size; ++rank) {
    if (!links[static_cast<size_t>(rank)].valid()) missing.push_back(rank);
  }
  if (!missing.empty()) ThrowMissing(options, missing);
  return links;
}

std::vector<UniqueFd> ConnectToFirst(const ProcessGroupOptions& options, const std::string& place,
                                     const std::string& secret, Deadline deadline) {
  const size_t colon = place.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(place.substr(colon + 1), &port)) {
    throw DataLossError(absl::StrCat(Who(options), ": a damaged store"));
  }
  UniqueFd socket;
  try {
    socket = ConnectTcp(place.substr(0, colon), port, deadline);
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat(Who(options), " cannot reach rank 0"));
  }
  if (!ProveRank(socket.get(), secret, options.rank, deadline)) {
    if (deadline.Expired()) ThrowMissing(options, {0});
    throw UnavailableError(absl::StrCat(Who(options), ": rank 0 at ", place,
                                        " has died, or what answers there is not rank 0"));
  }
  std::vector<UniqueFd> links(static_cast<size_t>(options.world_size));
  links[0] = std::move(socket);
  return links;
}

}  // namespace

std::string GroupKey(const ProcessGroupOptions& options, Deadline deadline) {
  const std::string prefix = absl::StrCat("gloo/", options.group_name);
  const int64_t number =
      options.store->Add(absl::StrCat(prefix, "/made/", options.rank), 1, deadline);
  return absl::StrCat(prefix, "/", number);
}

Meeting MeetRanks(const ProcessGroupOptions& options, const std::string& key, Deadline deadline) {
  Meeting meeting;
  const std::vector<Facts> facts = ExchangeFacts(options, key, deadline);
  meeting.all_have_shm = true;
  for (const Facts& fact : facts) {
    meeting.hosts.push_back(fact.host);
    meeting.all_have_shm = meeting.all_have_shm && fact.has_shm;
  }
  meeting.address = ChooseAddress(options, facts);
  const std::string place_key = absl::StrCat(key, "/control");
  if (options.rank == 0) {
    const UniqueFd listener = ListenTcp(meeting.address, 0);
    const std::string secret = RandomName();
    options.store->Set(place_key,
                       absl::StrCat(secret, "\n", meeting.address, ":", PortOf(listener.get())),
                       deadline);
    meeting.links = AcceptRanks(options, listener.get(), secret, deadline);
    return meeting;
  }
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(options.store->Get(place_key, deadline), absl::MaxSplits('\n', 1));
  meeting.links = ConnectToFirst(options, parts.second, parts.first, deadline);
  return meeting;
}

}  // namespace lockstep::comm::gloo
