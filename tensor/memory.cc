// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/memory.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/spin_lock.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/device_counters.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

constexpr absl::string_view kCategoryNames[kMemoryCategoryCount] = {
    "other",    "parameter",     "gradient",  "optimizer", "activation",
    "backward", "communication", "workspace", "data"};

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
std::string DescribeHolders(const MemoryStats& stats) {
  std::string text = absl::StrCat(stats.current_bytes, " bytes");
  absl::string_view separator = ": ";
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    if (stats.current.bytes[i] == 0) continue;
    absl::StrAppend(&text, separator, stats.current.bytes[i], " ", kCategoryNames[i]);
    separator = ", ";
  }
  return text;
}

Error OutOfMemory(Device device, int64_t bytes, MemoryCategory category, absl::string_view reason) {
  return ResourceExhaustedError(absl::StrCat(
      "out of memory on ", ToString(device), ": ", bytes, " more bytes (",
      MemoryCategoryName(category), ") ", reason, "; in use ",
      DescribeHolders(GetMemoryStats(device)),
      ". Use a smaller batch, activation checkpointing or sharding, or raise the limit"));
}

}  // namespace

absl::string_view MemoryCategoryName(MemoryCategory category) {
  return kCategoryNames[static_cast<int>(category)];
}

MemoryStats GetMemoryStats(Device device) {
  MemoryStats stats;
  {
    internal::DeviceCounters& counters = internal::CountersOf(device);
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
  internal::DeviceCounters& counters = internal::CountersOf(device);
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
  internal::DeviceCounters& counters = internal::CountersOf(device);
  std::lock_guard<SpinLock> guard(counters.lock);
  counters.limit_bytes = limit_bytes.value_or(internal::DeviceCounters::kNoLimit);
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

void ThrowOverLimit(Device device, int64_t bytes, MemoryCategory category) {
  int64_t limit_bytes = 0;
  {
    DeviceCounters& counters = CountersOf(device);
    std::lock_guard<SpinLock> guard(counters.lock);
    limit_bytes = counters.limit_bytes;
  }
  throw OutOfMemory(device, bytes, category, absl::StrCat("would pass the limit of ", limit_bytes));
}

void RefuseCounted(Device device, int64_t bytes, MemoryCategory category) {
  CountersOf(device).Uncount(bytes, category);
  throw OutOfMemory(device, bytes, category, "were refused by the system");
}

void* AllocateCounted(Device device, int64_t bytes, MemoryCategory category, int stream) {
  Allocator& allocator = AllocatorFor(device, "Allocate");
  if (!CountersOf(device).Count(bytes, category)) ThrowOverLimit(device, bytes, category);
  try {
    return bytes == 0 ? nullptr : allocator.Allocate(bytes, kStorageAlignment, stream, category);
  } catch (const Error&) {
    RefuseCounted(device, bytes, category);
  }
}

void FreeCounted(Device device, void* block, int64_t bytes, MemoryCategory category, int stream) {
  if (block != nullptr) AllocatorFor(device, "Free").Free(block, bytes, stream);
  CountersOf(device).Uncount(bytes, category);
}

}  // namespace internal
}  // namespace lockstep
