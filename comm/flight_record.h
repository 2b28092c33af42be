// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What one rank did in one group lately.
//
//   FlightRecord record = communicator->flight_record();          // at any time
//
// comm/flight_record_file.h writes and reads them.
#ifndef LOCKSTEP_COMM_FLIGHT_RECORD_H_
#define LOCKSTEP_COMM_FLIGHT_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/signature.h"

namespace lockstep::comm {

enum class CallState : uint8_t {
  kIssued,     // queued, or a transfer under way
  kStarted,    // a collective whose turn has come on this rank
  kCompleted,  // its result is there
  kFailed,
};
// "issued", "started", "completed", "failed".
absl::string_view CallStateName(CallState state);

// One collective or transfer.
struct FlightCall {
  // Of a collective its sequence number; of a transfer, the how manieth between these two ranks in
  // this direction. From 0.
  int64_t number = 0;
  Signature signature;
  std::vector<int64_t> counts;  // of an uneven collective
  int64_t bytes = 0;            // of the largest tensor
  CallState state = CallState::kIssued;
  // Monotonic nanoseconds of that rank's host (base/clock.h); 0: has not come yet. A transfer's
  // start is its issue.
  int64_t issued_ns = 0;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;

  bool is_transfer() const { return signature.peer >= 0; }
  // "AllReduce(float32 x 5, sum)".
  std::string ToString() const { return signature.ToString(counts); }

  friend bool operator==(const FlightCall&, const FlightCall&) = default;
};

struct FlightRecord {
  std::string group;
  // Tells groups of one name apart that were made one after another.
  std::string key;
  int rank = 0;
  int size = 1;
  std::vector<int> world_ranks;  // of the members, by rank
  int64_t process = 0;
  // The same moment on both clocks: what relates the calls' times to those of other hosts.
  int64_t anchor_monotonic_ns = 0;
  int64_t anchor_wall_ns = 0;  // since 1970
  int64_t written_monotonic_ns = 0;
  // Counters that do not forget, unlike `calls`.
  int64_t collectives_issued = 0;
  int64_t collectives_completed = 0;  // in order: 0 to this, exclusively
  // The first error that this rank met in the group; OK: none.
  absl::StatusCode error_code = absl::StatusCode::kOk;
  std::string error;
  std::vector<FlightCall> calls;  // the last ones, oldest first
  int64_t forgotten = 0;          // calls before those

  int world_rank(int member) const { return world_ranks[static_cast<size_t>(member)]; }
  int64_t WallNs(int64_t monotonic_ns) const {
    return monotonic_ns - anchor_monotonic_ns + anchor_wall_ns;
  }

  friend bool operator==(const FlightRecord&, const FlightRecord&) = default;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_FLIGHT_RECORD_H_
