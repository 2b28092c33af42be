// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/fault_injector.h"

namespace lockstep::comm {

absl::string_view FaultKindName(FaultKind kind) {
  switch (kind) {
    case FaultKind::kDelay:
      return "delay";
    case FaultKind::kDrop:
      return "drop";
    case FaultKind::kDuplicate:
      return "duplicate";
    case FaultKind::kReorder:
      return "reorder";
    case FaultKind::kCorruptHeader:
      return "corrupt header";
    case FaultKind::kCorruptPayload:
      return "corrupt payload";
    case FaultKind::kKill:
      return "kill";
  }
  return "unknown fault";
}

}  // namespace lockstep::comm
