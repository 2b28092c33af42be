// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A lock for sections of a few instructions, such as adding to counters, where std::mutex's second
// atomic operation and its calls would cost more than the section.
//
//   SpinLock lock;
//   std::lock_guard<SpinLock> guard(lock);
//   ++count;
//
// Never held across a call that may block, allocate or throw. A waiter that
// spins in vain (the holder was descheduled) gives its processor away.
#ifndef LOCKSTEP_BASE_SPIN_LOCK_H_
#define LOCKSTEP_BASE_SPIN_LOCK_H_

#include <atomic>

namespace lockstep {

class SpinLock {
 public:
  constexpr SpinLock() = default;
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

  void lock() {
    if (locked_.exchange(true, std::memory_order_acquire)) Wait();
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  void Wait();

  std::atomic<bool> locked_{false};
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_SPIN_LOCK_H_
