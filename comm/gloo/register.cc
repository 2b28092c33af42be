// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes gloo communicators, and makes InitProcessGroup find them.

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/gloo/gloo_communicator.h"
#include "lockstep/comm/gloo/meeting.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm::gloo {

std::shared_ptr<Communicator> MakeGlooCommunicator(const ProcessGroupOptions& options) {
  if (options.peer_memory_access != PeerMemoryAccess::kAutomatic) {
    throw InvalidArgumentError(
        "InitProcessGroup: peer_memory_access is the shm backend's: leave it automatic for gloo");
  }
  if (options.verify_payload || options.fault_injector != nullptr) {
    throw UnimplementedError(
        absl::StrCat("InitProcessGroup: the gloo backend does not have ",
                     options.verify_payload ? "verify_payload" : "a fault_injector",
                     ": use the shm backend, or leave it out"));
  }
  return MakeGlooCommunicator(options, GroupKey(options, Deadline::After(options.timeout)));
}

std::shared_ptr<Communicator> MakeGlooCommunicator(const ProcessGroupOptions& options,
                                                   const std::string& key) {
  const Deadline deadline = Deadline::After(options.timeout);
  Meeting meeting = MeetRanks(options, key, deadline);
  GroupParts parts;
  parts.key = key;
  const int size = options.world_size;
  std::shared_ptr<::gloo::Context> context;
  try {
    if (size > 1) {
      context = ConnectGloo(*options.store, key, meeting.address, options.rank, size, deadline);
    }
    parts.control =
        std::make_unique<Control>(std::move(meeting.links), options.rank, size, options.group_name);
    parts.exchange = std::make_unique<Exchange>(std::move(context), parts.control.get());
    parts.transfers = std::make_unique<Transfers>(parts.exchange.get(), parts.control.get());
    parts.control->OnInterrupt(
        [exchange = parts.exchange.get(), transfers = parts.transfers.get()] {
          exchange->Interrupt();
          transfers->Interrupt();
        });
    parts.control->Start();
    try {
      parts.control->Meet({options.rank, -1, Signature{}, {}}, deadline.Remaining());
    } catch (...) {
      parts.control->Stop();
      parts.control->Leave();
      throw;
    }
  } catch (const Error& error) {
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
