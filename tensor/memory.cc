// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/memory.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/spin_lock.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

constexpr absl::string_view kCategoryNames[kMemoryCategoryCount] = {
    "other",    "parameter",     "gradient",  "optimizer", "activation",
    "backward", "communication", "workspace", "data"};

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Counters of one device. One lock, so that a snapshot adds up.
struct DeviceCounters {
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
};

DeviceCounters& Counters(Device device) {
  static constinit std::array<DeviceCounters, kDeviceOrdinalCount> counters{};
  return counters[device.ordinal()];
}

std::atomic<Allocator*>& AllocatorSlot(DeviceType type) {
  static auto* slots = new std::array<std::atomic<Allocator*>, kDeviceTypeCount>{
      new CachingAllocator, nullptr, nullptr, new CachingAllocator};
  return (*slots)[static_cast<int>(type)];
}

Allocator& AllocatorFor(Device device, absl::string_view call) {
  Allocator* allocator = AllocatorSlot(device.type).load(std::memory_order_acquire);
  if (allocator == nullptr) {
    throw UnimplementedError(absl::StrCat(call, ": no memory on ", ToString(device),
                                          ": link the backend of that device (//tensor/cuda)"));
  }
  return *allocator;
}

// "12 bytes: 8 parameter, 4 activation".
std::string DescribeHolders(const DeviceCounters& counters) {
  std::string text = absl::StrCat(counters.current_bytes, " bytes");
  absl::string_view separator = ": ";
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    if (counters.current.bytes[i] == 0) continue;
    absl::StrAppend(&text, separator, counters.current.bytes[i], " ", kCategoryNames[i]);
    separator = ", ";
  }
  return text;
}

Error OutOfMemory(Device device, int64_t bytes, MemoryCategory category,
                  const DeviceCounters& counters, absl::string_view reason) {
  return ResourceExhaustedError(absl::StrCat(
      "out of memory on ", ToString(device), ": ", bytes, " more bytes (",
      MemoryCategoryName(category), ") ", reason, "; in use ", DescribeHolders(counters),
      ". Use a smaller batch, activation checkpointing or sharding, or raise the limit"));
}

// Not inlined: building the message would cost every allocation.
[[noreturn]] __attribute__((noinline, cold)) void ThrowOverLimit(Device device, int64_t bytes,
                                                                 MemoryCategory category,
                                                                 const DeviceCounters& counters) {
  throw OutOfMemory(device, bytes, category, counters,
                    absl::StrCat("would pass the limit of ", counters.limit_bytes));
}

}  // namespace

absl::string_view MemoryCategoryName(MemoryCategory category) {
  return kCategoryNames[static_cast<int>(category)];
}

MemoryStats GetMemoryStats(Device device) {
  MemoryStats stats;
  {
    DeviceCounters& counters = Counters(device);
    std::lock_guard<SpinLock> guard(counters.lock);
    stats.current_bytes = counters.current_bytes;
    stats.peak_bytes = counters.peak_bytes;
    stats.current = counters.current;
    stats.peak = counters.peak;
    stats.allocation_count = counters.allocation_count;
  }
  if (Allocator* allocator = AllocatorSlot(device.type).load(std::memory_order_acquire)) {
    stats.system_allocation_count = allocator->SystemAllocationCount();
    stats.cached_bytes = allocator->CachedBytes();
  }
  return stats;
}

void ResetPeakBytes(Device device) {
  DeviceCounters& counters = Counters(device);
  std::lock_guard<SpinLock> guard(counters.lock);
  counters.peak_bytes = counters.current_bytes;
  counters.peak = counters.current;
}

void SetCapacityLimit(Device device, std::optional<int64_t> limit_bytes) {
  if (limit_bytes.has_value() && *limit_bytes < 0) {
    throw InvalidArgumentError(absl::StrCat("SetCapacityLimit: ", *limit_bytes, " bytes on ",
                                            ToString(device),
                                            "; give a limit >= 0, or nullopt for none"));
  }
  DeviceCounters& counters = Counters(device);
  std::lock_guard<SpinLock> guard(counters.lock);
  counters.limit_bytes = limit_bytes.value_or(kNoLimit);
}

void EmptyCache(Device device) {
  if (Allocator* allocator = AllocatorSlot(device.type).load(std::memory_order_acquire)) {
    allocator->EmptyCache();
  }
}

void RegisterAllocator(DeviceType type, Allocator* allocator) {
  Allocator* expected = nullptr;
  if (!AllocatorSlot(type).compare_exchange_strong(expected, allocator)) {
    throw FailedPreconditionError(absl::StrCat("RegisterAllocator: devices like ",
                                               ToString(Device{type, 0}),
                                               " already have an allocator"));
  }
}

CategoryScope::CategoryScope(MemoryCategory category)
    : saved_(std::exchange(MutableThreadState().category, category)) {}
CategoryScope::~CategoryScope() { MutableThreadState().category = saved_; }

namespace internal {

void CountAllocation(Device device, int64_t bytes, MemoryCategory category) {
  DeviceCounters& counters = Counters(device);
  std::lock_guard<SpinLock> guard(counters.lock);
  if (bytes > counters.limit_bytes - counters.current_bytes) {
    ThrowOverLimit(device, bytes, category, counters);
  }
  counters.Change(bytes, category);
  ++counters.allocation_count;
}

void RefuseCounted(Device device, int64_t bytes, MemoryCategory category) {
  DeviceCounters& counters = Counters(device);
  std::lock_guard<SpinLock> guard(counters.lock);
  counters.Change(-bytes, category);
  throw OutOfMemory(device, bytes, category, counters, "were refused by the system");
}

void* AllocateCounted(Device device, int64_t bytes, MemoryCategory category, int stream) {
  Allocator& allocator = AllocatorFor(device, "Allocate");
  CountAllocation(device, bytes, category);
  try {
    return bytes == 0 ? nullptr : allocator.Allocate(bytes, kStorageAlignment, stream, category);
  } catch (const Error&) {
    RefuseCounted(device, bytes, category);
  }
}

void FreeCounted(Device device, void* block, int64_t bytes, MemoryCategory category, int stream) {
  if (block != nullptr) AllocatorFor(device, "Free").Free(block, bytes, stream);
  Uncount(device, bytes, category);
}

void CountExternal(Device device, int64_t bytes, MemoryCategory category) {
  DeviceCounters& counters = Counters(device);
  std::lock_guard<SpinLock> guard(counters.lock);
  counters.Change(bytes, category);
}

void Uncount(Device device, int64_t bytes, MemoryCategory category) {
  DeviceCounters& counters = Counters(device);
  std::lock_guard<SpinLock> guard(counters.lock);
  counters.Change(-bytes, category);
}

void MoveCategory(Device device, int64_t bytes, MemoryCategory from, MemoryCategory to) {
  DeviceCounters& counters = Counters(device);
  std::lock_guard<SpinLock> guard(counters.lock);
  counters.current[from] -= bytes;
  counters.current[to] += bytes;
  counters.peak[to] = std::max(counters.peak[to], counters.current[to]);
}

}  // namespace internal
}  // namespace lockstep
