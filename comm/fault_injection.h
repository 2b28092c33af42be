// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A plan of faults, for tests:
//
//   options.fault_injector = std::make_shared<PlannedFaults>(std::vector<PlannedFault>{
//       {.kind = FaultKind::kDrop, .rank = 1, .number = 3}});
//   auto world = InitProcessGroup(options);
//   ...                                   // rank 1's message for collective 3 never arrives
#ifndef LOCKSTEP_COMM_FAULT_INJECTION_H_
#define LOCKSTEP_COMM_FAULT_INJECTION_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/comm/fault_injector.h"

namespace lockstep::comm {

// Strikes the message of this rank and number, in each group of this name.
struct PlannedFault {
  FaultKind kind = FaultKind::kDelay;
  int rank = 0;  // the sender's, in the group
  int64_t number = 0;
  bool transfer = false;  // of a transfer to any peer, else of a collective
  std::string group = "world";
  absl::Duration delay = absl::Milliseconds(50);  // of kDelay
};

class PlannedFaults final : public FaultInjector {
 public:
  explicit PlannedFaults(std::vector<PlannedFault> faults) : faults_(std::move(faults)) {}

  std::optional<FaultKind> At(const MessagePoint& point) override;
  bool Kills() const override;

  // How many messages have been struck so far, in this process.
  int64_t struck() const { return struck_.load(); }

 private:
  const std::vector<PlannedFault> faults_;
  std::atomic<int64_t> struck_{0};
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_FAULT_INJECTION_H_
