// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/base/clock.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace lockstep {

static_assert(std::chrono::steady_clock::period::den == 1'000'000'000);

int64_t MonotonicNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Deadline Deadline::After(absl::Duration timeout) {
  Deadline deadline;
  if (timeout == absl::InfiniteDuration()) return deadline;
  const int64_t now_ns = MonotonicNanoseconds();
  // Saturates at the ends of int64.
  const int64_t timeout_ns = std::max<int64_t>(absl::ToInt64Nanoseconds(timeout), 0);
  if (timeout_ns < kNever - now_ns) deadline.at_ns_ = now_ns + timeout_ns;
  return deadline;
}

absl::Duration Deadline::Remaining() const {
  if (IsInfinite()) return absl::InfiniteDuration();
  return absl::Nanoseconds(std::max<int64_t>(at_ns_ - MonotonicNanoseconds(), 0));
}

int Deadline::RemainingPollMilliseconds() const {
  if (IsInfinite()) return -1;
  const int64_t left_ms = absl::ToInt64Milliseconds(absl::Ceil(Remaining(), absl::Milliseconds(1)));
  return static_cast<int>(std::min<int64_t>(left_ms, std::numeric_limits<int>::max()));
}

std::chrono::steady_clock::time_point Deadline::ToTimePoint() const {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(at_ns_));
}

}  // namespace lockstep
