// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Where tests make communication go wrong: the one interface between a backend and a plan of
// faults. No production code implements it; comm/fault_injection.h does, for tests.
//
// A backend asks at the place where it hands a rank's message to the peers: the header of a
// collective, which says what this rank calls, or the first piece of a transfer. What it then does
// for each kind is in docs/comm.md.
#ifndef LOCKSTEP_COMM_FAULT_INJECTOR_H_
#define LOCKSTEP_COMM_FAULT_INJECTOR_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace lockstep::comm {

enum class FaultKind : uint8_t {
  kDelay,           // the message is late
  kDrop,            // it never arrives
  kDuplicate,       // the one before it arrives in its place; a transfer's arrives twice
  kReorder,         // it arrives in the place of the one before, with the number of the next
  kCorruptHeader,   // a bit of the header flips on the way
  kCorruptPayload,  // a bit of the data flips on the way
  kKill,            // the process is gone, by SIGKILL
};
inline constexpr int kFaultKinds = 7;
// "delay", "drop", ...
absl::string_view FaultKindName(FaultKind kind);

// A message about to be sent. Ranks are those of the group.
struct MessagePoint {
  absl::string_view group;
  int rank = 0;        // the sender
  int peer = -1;       // of a transfer; -1: a collective
  int64_t number = 0;  // sequence number, or that of the transfer between these two
};

// Thread-safe. One object may serve several groups, and ranks that are threads.
class FaultInjector {
 public:
  virtual ~FaultInjector() = default;
  // What the backend has to do to this message. A delay and a kill have been carried out by the
  // callee, and are not returned.
  virtual std::optional<FaultKind> At(const MessagePoint& point) = 0;
  // Whether it may kill the process: refused for ranks that are threads.
  virtual bool Kills() const = 0;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_FAULT_INJECTOR_H_
