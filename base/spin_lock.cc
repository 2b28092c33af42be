// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/spin_lock.h"

#include <thread>

namespace lockstep {
namespace {

// Long against the sections, short against a time slice.
constexpr int kSpins = 200;

}  // namespace

void SpinLock::Wait() {
  int spins = 0;
  while (locked_.load(std::memory_order_relaxed) ||
         locked_.exchange(true, std::memory_order_acquire)) {
    if (++spins < kSpins) continue;
    std::this_thread::yield();
    spins = 0;
  }
}

}  // namespace lockstep
