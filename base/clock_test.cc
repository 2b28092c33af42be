// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/base/clock.h"

#include <chrono>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

void SpinUntilTheClockMoves() {
  const int64_t start_ns = MonotonicNanoseconds();
  while (MonotonicNanoseconds() == start_ns) {
  }
}

TEST(MonotonicTest, IsSteadyClockInNanoseconds) {
  const auto steady_ns = [] {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  const int64_t before_ns = steady_ns();
  const int64_t now_ns = MonotonicNanoseconds();
  EXPECT_LE(before_ns, now_ns);
  EXPECT_LE(now_ns, steady_ns());
}

TEST(StopwatchTest, MeasuresAndRestarts) {
  const int64_t before_ns = MonotonicNanoseconds();
  Stopwatch watch;
  SpinUntilTheClockMoves();
  const int64_t elapsed_ns = watch.ElapsedNanoseconds();
  EXPECT_GT(elapsed_ns, 0);
  EXPECT_LE(elapsed_ns, MonotonicNanoseconds() - before_ns);
  EXPECT_GE(watch.Elapsed(), absl::Nanoseconds(elapsed_ns));
  const double lower_s = static_cast<double>(elapsed_ns) * 1e-9;
  const double seconds = watch.ElapsedSeconds();
  EXPECT_GE(seconds, lower_s);
  EXPECT_LE(seconds, static_cast<double>(MonotonicNanoseconds() - before_ns) * 1e-9);

  const int64_t restart_ns = MonotonicNanoseconds();
  watch.Restart();
  // Read in this order: the arguments of one call are evaluated in any.
  const int64_t after_restart_ns = watch.ElapsedNanoseconds();
  EXPECT_LE(after_restart_ns, MonotonicNanoseconds() - restart_ns);
}

TEST(DeadlineTest, DefaultAndInfiniteNeverExpire) {
  for (const Deadline& deadline :
       {Deadline(), Deadline::Infinite(), Deadline::After(absl::InfiniteDuration()),
        Deadline::After(absl::Hours(24 * 366 * 1000))}) {
    EXPECT_TRUE(deadline.IsInfinite());
    EXPECT_FALSE(deadline.Expired());
    EXPECT_EQ(deadline.Remaining(), absl::InfiniteDuration());
    EXPECT_EQ(deadline.RemainingPollMilliseconds(), -1);
    EXPECT_EQ(deadline.ToTimePoint(), std::chrono::steady_clock::time_point::max());
  }
}

TEST(DeadlineTest, ZeroAndNegativeAreExpiredAtOnce) {
  for (const absl::Duration timeout :
       {absl::ZeroDuration(), absl::Seconds(-5), -absl::InfiniteDuration()}) {
    const Deadline deadline = Deadline::After(timeout);
    EXPECT_FALSE(deadline.IsInfinite());
    EXPECT_TRUE(deadline.Expired());
    EXPECT_EQ(deadline.Remaining(), absl::ZeroDuration());
    EXPECT_EQ(deadline.RemainingPollMilliseconds(), 0);
    EXPECT_LE(deadline.ToTimePoint(), std::chrono::steady_clock::now());
  }
}

TEST(DeadlineTest, CountsDown) {
  const auto before = std::chrono::steady_clock::now();
  const Deadline deadline = Deadline::After(absl::Hours(1));
  EXPECT_GE(deadline.ToTimePoint(), before + std::chrono::hours(1));
  EXPECT_LE(deadline.ToTimePoint(), std::chrono::steady_clock::now() + std::chrono::hours(1));
  const absl::Duration first = deadline.Remaining();
  EXPECT_LE(first, absl::Hours(1));
  EXPECT_GT(first, absl::Minutes(30));
  EXPECT_FALSE(deadline.Expired());
  SpinUntilTheClockMoves();
  EXPECT_LT(deadline.Remaining(), first);
}

TEST(DeadlineTest, ExpiresWhenTheTimeHasCome) {
  const Deadline deadline = Deadline::After(absl::Microseconds(50));
  while (!deadline.Expired()) {
  }
  EXPECT_EQ(deadline.Remaining(), absl::ZeroDuration());
}

TEST(DeadlineTest, PollTimeIsRoundedUpAndCapped) {
  const Deadline soon = Deadline::After(absl::Seconds(3600.0005));
  EXPECT_LE(soon.RemainingPollMilliseconds(), 3'600'001);
  EXPECT_GT(soon.RemainingPollMilliseconds(), 3'000'000);
  // Whatever is left, a poll of that length ends at or after the deadline.
  const absl::Duration upper = absl::Milliseconds(soon.RemainingPollMilliseconds());
  EXPECT_GE(upper, soon.Remaining());
  EXPECT_EQ(Deadline::After(absl::Hours(24 * 365)).RemainingPollMilliseconds(),
            std::numeric_limits<int>::max());
}

TEST(DeadlineTest, EarlierIsSmaller) {
  const Deadline soon = Deadline::After(absl::Seconds(1));
  const Deadline later = Deadline::After(absl::Seconds(100));
  EXPECT_LT(soon, later);
  EXPECT_LT(later, Deadline::Infinite());
  EXPECT_EQ(std::min(Deadline::Infinite(), soon), soon);
}

}  // namespace
}  // namespace lockstep
