// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/spin_lock.h"

#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

// More threads than processors, so that waiters also meet holders that are not running.
TEST(SpinLockTest, OneHolderAtATime) {
  constexpr int kThreads = 7;
  constexpr int kRounds = 20000;
  SpinLock lock;
  int64_t count = 0;
  int64_t shadow = 0;  // equal to count whenever nobody holds the lock
  bool equal = true;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        std::lock_guard<SpinLock> guard(lock);
        equal = equal && count == shadow;
        ++count;
        ++shadow;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(equal);
  EXPECT_EQ(count, int64_t{kThreads} * kRounds);
}

TEST(SpinLockTest, CanBeTakenAgainAfterUnlock) {
  SpinLock lock;
  for (int i = 0; i < 3; ++i) {
    lock.lock();
    lock.unlock();
  }
  std::lock_guard<SpinLock> guard(lock);
}

}  // namespace
}  // namespace lockstep
