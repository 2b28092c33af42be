// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Passes a fault of a hierarchical group on to the group of a host, whose calls have other numbers:
// a message of this rank there is struck that is about to be sent.
//
//   auto next = std::make_shared<NextFault>();
//   host_options.fault_injector = next;
//   ...
//   next->CorruptNext();
#ifndef LOCKSTEP_COMM_GLOO_NEXT_FAULT_H_
#define LOCKSTEP_COMM_GLOO_NEXT_FAULT_H_

#include <atomic>
#include <optional>

#include "lockstep/comm/fault_injector.h"

namespace lockstep::comm::gloo {

// Of one rank.
class NextFault final : public FaultInjector {
 public:
  // The payload of the next message, a collective's or a transfer's, after so many others.
  void CorruptNext(int after = 0) { left_.store(after); }

  std::optional<FaultKind> At(const MessagePoint& /*point*/) override {
    if (left_.load() == kNone || left_.fetch_sub(1) > 0) return std::nullopt;
    return FaultKind::kCorruptPayload;
  }
  bool Kills() const override { return false; }

 private:
  static constexpr int kNone = -1;

  std::atomic<int> left_{kNone};
};

}  // namespace lockstep::comm::gloo

#endif  // LOCKSTEP_COMM_GLOO_NEXT_FAULT_H_
