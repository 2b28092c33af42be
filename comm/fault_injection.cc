// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/fault_injection.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "absl/time/clock.h"

namespace lockstep::comm {

std::optional<FaultKind> PlannedFaults::At(const MessagePoint& point) {
  for (const PlannedFault& fault : faults_) {
    if (fault.rank != point.rank || fault.number != point.number ||
        fault.transfer != (point.peer >= 0) || fault.group != point.group) {
      continue;
    }
    struck_.fetch_add(1);
    if (fault.kind == FaultKind::kKill) kill(getpid(), SIGKILL);
    if (fault.kind != FaultKind::kDelay) return fault.kind;
    absl::SleepFor(fault.delay);
  }
  return std::nullopt;
}

bool PlannedFaults::Kills() const {
  return std::any_of(faults_.begin(), faults_.end(),
                     [](const PlannedFault& fault) { return fault.kind == FaultKind::kKill; });
}

}  // namespace lockstep::comm
