// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a keeper and its launcher say to each other: texts over a SOCK_SEQPACKET socket.
#ifndef LOCKSTEP_TOOLS_LAUNCHER_KEEPER_MESSAGES_H_
#define LOCKSTEP_TOOLS_LAUNCHER_KEEPER_MESSAGES_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace lockstep::launcher {

// Of a keeper's command line; the descriptor of its socket and the grace in milliseconds follow.
inline constexpr absl::string_view kKeeperMarker = "--lockstep_rank_keeper=";

inline constexpr absl::string_view kSignalCommand = "signal ";  // number
inline constexpr absl::string_view kKillCommand = "kill";

inline constexpr absl::string_view kStartedReport = "started ";  // pid
inline constexpr absl::string_view kEndedReport = "ended ";      // wait status, nanoseconds
inline constexpr absl::string_view kFailedReport = "failed ";    // reason

inline constexpr size_t kMaxKeeperMessage = 4096;
inline constexpr int kCannotExecuteStatus = 127;  // as a shell has it

}  // namespace lockstep::launcher

#endif  // LOCKSTEP_TOOLS_LAUNCHER_KEEPER_MESSAGES_H_
