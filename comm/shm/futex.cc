// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

#include "lockstep/base/clock.h"

namespace lockstep::comm::shm {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
              std::atomic<uint32_t>::is_always_lock_free);

void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, absl::Duration at_most,
               uint32_t kinds) {
  // This form of the call wants a moment of the monotonic clock, not a duration.
  const absl::Duration slice = std::max(at_most, absl::ZeroDuration());
  const timespec until = absl::ToTimespec(absl::Nanoseconds(MonotonicNanoseconds()) + slice);
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, expected, &until, nullptr, kinds);
}

void FutexWakeAll(const std::atomic<uint32_t>& word, uint32_t kinds) {
  syscall(SYS_futex, &word, FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, kinds);
}

}  // namespace lockstep::comm::shm
