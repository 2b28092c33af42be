// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Elapsed time and deadlines, on a clock that never jumps.
//
//   Stopwatch watch;
//   Step();
//   double seconds = watch.ElapsedSeconds();
//
//   const Deadline deadline = Deadline::After(absl::Seconds(30));
//   while (!Ready()) {
//     if (deadline.Expired()) throw DeadlineExceededError(...);
//     poll(fds, n, deadline.RemainingPollMilliseconds());
//   }
//
// All of it is CLOCK_MONOTONIC, which std::chrono::steady_clock reads too: unaffected by changes of
// the wall clock, comparable between processes of one host, and meaningless on another host. Every
// function is safe to call from any thread; none throws.

#ifndef LOCKSTEP_BASE_CLOCK_H_
#define LOCKSTEP_BASE_CLOCK_H_

#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace lockstep {

// Nanoseconds since an arbitrary point (on Linux: the start of the machine).
int64_t MonotonicNanoseconds();

// Measures from its construction, or from the last Restart().
class Stopwatch {
 public:
  Stopwatch() : start_ns_(MonotonicNanoseconds()) {}

  void Restart() { start_ns_ = MonotonicNanoseconds(); }

  int64_t ElapsedNanoseconds() const { return MonotonicNanoseconds() - start_ns_; }
  double ElapsedSeconds() const { return static_cast<double>(ElapsedNanoseconds()) * 1e-9; }
  absl::Duration Elapsed() const { return absl::Nanoseconds(ElapsedNanoseconds()); }

 private:
  int64_t start_ns_;
};

// A point in time by which something has to be done. Fixed once, it is handed down through every
// wait of an operation, so that retries and partial waits do not stretch it. Default: infinite.
class Deadline {
 public:
  Deadline() = default;

  static Deadline Infinite() { return Deadline(); }

  // `timeout` from now. Zero or negative: expired at once. Infinite, or beyond what the clock can
  // express (292 years): never.
  static Deadline After(absl::Duration timeout);

  bool IsInfinite() const { return at_ns_ == kNever; }
  bool Expired() const { return !IsInfinite() && MonotonicNanoseconds() >= at_ns_; }

  // Time left, never negative; absl::InfiniteDuration() if infinite.
  absl::Duration Remaining() const;

  // Time left as poll() and epoll_wait() want it: rounded up, so that a wait does not return just
  // before the deadline; 0 if expired, -1 if infinite.
  int RemainingPollMilliseconds() const;

  // The same moment for std::condition_variable::wait_until and its like; time_point::max() if
  // infinite.
  std::chrono::steady_clock::time_point ToTimePoint() const;

  // The earlier deadline is the smaller one.
  friend auto operator<=>(const Deadline& a, const Deadline& b) = default;

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  int64_t at_ns_ = kNever;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_CLOCK_H_
