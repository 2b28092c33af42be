// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Byte counters of each device. Private to memory.cc and storage.cc: every storage passes here
// twice, so what it does is inline.
#ifndef LOCKSTEP_TENSOR_DEVICE_COUNTERS_H_
#define LOCKSTEP_TENSOR_DEVICE_COUNTERS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <mutex>

#include "lockstep/base/spin_lock.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/memory.h"

namespace lockstep::internal {

// One lock, so that a snapshot adds up.
struct DeviceCounters {
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  SpinLock lock;
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
  BytesByCategory current;
  BytesByCategory peak;
  int64_t allocation_count = 0;
  int64_t limit_bytes = kNoLimit;

  // REQUIRES: lock held.
  void Change(int64_t bytes, MemoryCategory category) {
    current_bytes += bytes;
    current[category] += bytes;
    peak_bytes = std::max(peak_bytes, current_bytes);
    peak[category] = std::max(peak[category], current[category]);
  }

  // Counts an allocation; false, with nothing counted, when it would pass the limit.
  bool Count(int64_t bytes, MemoryCategory category) {
    std::lock_guard<SpinLock> guard(lock);
    if (bytes > limit_bytes - current_bytes) return false;
    Change(bytes, category);
    ++allocation_count;
    return true;
  }
  void Uncount(int64_t bytes, MemoryCategory category) {
    std::lock_guard<SpinLock> guard(lock);
    Change(-bytes, category);
  }
};

inline DeviceCounters& CountersOf(Device device) {
  static constinit std::array<DeviceCounters, kDeviceOrdinalCount> counters{};
  return counters[device.ordinal()];
}

// The errors of an allocation that was not counted, and of one that was counted and that the system
// then refused (which takes it back).
[[noreturn]] void ThrowOverLimit(Device device, int64_t bytes, MemoryCategory category);
[[noreturn]] void RefuseCounted(Device device, int64_t bytes, MemoryCategory category);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_TENSOR_DEVICE_COUNTERS_H_
