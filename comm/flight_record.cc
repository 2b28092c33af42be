// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/flight_record.h"

#include "absl/strings/string_view.h"

namespace lockstep::comm {

absl::string_view CallStateName(CallState state) {
  switch (state) {
    case CallState::kIssued:
      return "issued";
    case CallState::kStarted:
      return "started";
    case CallState::kCompleted:
      return "completed";
    case CallState::kFailed:
      return "failed";
  }
  return "unknown";
}

}  // namespace lockstep::comm
