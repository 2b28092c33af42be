// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/capacity_limit.h"

#include <mutex>

#include "lockstep/base/spin_lock.h"
#include "lockstep/tensor/device_counters.h"

namespace lockstep {

std::optional<int64_t> CapacityLimit(Device device) {
  internal::DeviceCounters& counters = internal::CountersOf(device);
  std::lock_guard<SpinLock> guard(counters.lock);
  if (counters.limit_bytes == internal::DeviceCounters::kNoLimit) return std::nullopt;
  return counters.limit_bytes;
}

}  // namespace lockstep
