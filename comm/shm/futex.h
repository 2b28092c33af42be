// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Sleeping on a word of memory that threads or processes share.
#ifndef LOCKSTEP_COMM_SHM_FUTEX_H_
#define LOCKSTEP_COMM_SHM_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace lockstep::comm::shm {

// Sleepers on one word may be of several kinds, a bit each; a waker names the kinds it means.
inline constexpr uint32_t kAnySleeper = ~uint32_t{0};

// Returns when somebody wakes the word, when it is not `expected`, after `at_most`, or for no
// reason.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, absl::Duration at_most,
               uint32_t kinds = kAnySleeper);

void FutexWakeAll(const std::atomic<uint32_t>& word, uint32_t kinds = kAnySleeper);

// For the body of a loop that spins.
inline void SpinPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_FUTEX_H_
