// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory of devices: who holds how many bytes, limits, and the allocators underneath.
//
//   SetCapacityLimit(Cpu(1), 64 << 20);            // a small device on any machine
//   ResetPeakBytes(Cpu(0));
//   Step();
//   MemoryStats stats = GetMemoryStats(Cpu(0));
//   stats.peak[MemoryCategory::kActivation];       // bytes at the category's own peak
//
// Current bytes of the categories add up to the total at every moment. The peak of the total is the
// largest total; each category has its own peak, at its own moment.
#ifndef LOCKSTEP_TENSOR_MEMORY_H_
#define LOCKSTEP_TENSOR_MEMORY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/tensor/device.h"

namespace lockstep {

// What a storage is for. It has one category, set by scope when it is made.
enum class MemoryCategory : uint8_t {
  kOther = 0,
  kParameter,
  kGradient,  // .grad and gradient buckets
  kOptimizer,
  kActivation,  // made by an op in the forward pass while gradients are recorded
  kBackward,    // made during Backward
  kCommunication,
  kWorkspace,  // a kernel's scratch
  kData,
};
inline constexpr int kMemoryCategoryCount = 9;
absl::string_view MemoryCategoryName(MemoryCategory category);

struct BytesByCategory {
  std::array<int64_t, kMemoryCategoryCount> bytes{};
  int64_t operator[](MemoryCategory c) const { return bytes[static_cast<int>(c)]; }
  int64_t& operator[](MemoryCategory c) { return bytes[static_cast<int>(c)]; }
};

struct MemoryStats {
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
  BytesByCategory current;
  BytesByCategory peak;
  int64_t allocation_count = 0;         // storages made since start
  int64_t system_allocation_count = 0;  // times the allocator asked the system
  int64_t cached_bytes = 0;             // free blocks kept for reuse
};

// Thread-safe; a consistent snapshot.
MemoryStats GetMemoryStats(Device device);
// Peaks restart from the current bytes.
void ResetPeakBytes(Device device);
// Allocations that would take `device` beyond `limit_bytes` throw ResourceExhausted and change
// nothing; nullopt removes the limit. Throws InvalidArgument for a negative limit.
void SetCapacityLimit(Device device, std::optional<int64_t> limit_bytes);
// Gives cached free blocks of `device` back to the system.
void EmptyCache(Device device);

// A block as storages see it. `stream` arguments are stream ids of the device (0: compute).
class Allocator {
 public:
  virtual ~Allocator() = default;
  // Returns memory aligned to `alignment` (a power of two), never null for bytes > 0; throws
  // ResourceExhausted. `category` is for implementations that place by purpose.
  virtual void* Allocate(int64_t bytes, int64_t alignment, int stream, MemoryCategory category) = 0;
  // `stream` is the one that used the block last.
  virtual void Free(void* block, int64_t bytes, int stream) = 0;
  virtual void EmptyCache() {}
  virtual int64_t CachedBytes() const { return 0; }
  virtual int64_t SystemAllocationCount() const { return 0; }
};

// Makes `allocator` (kept for ever) serve all devices of `type`. The CPU and host have theirs from
// the start. Throws FailedPrecondition when the type already has one.
void RegisterAllocator(DeviceType type, Allocator* allocator);

// Alignment of every storage.
inline constexpr int64_t kStorageAlignment = 64;

// Scope: storages made by this thread get `category`.
class CategoryScope {
 public:
  explicit CategoryScope(MemoryCategory category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  MemoryCategory saved_;
};

namespace internal {
// Used by Storage only. Counts the bytes and allocates; throws ResourceExhausted with the table of
// categories.
void* AllocateCounted(Device device, int64_t bytes, MemoryCategory category, int stream);
void FreeCounted(Device device, void* block, int64_t bytes, MemoryCategory category, int stream);
}  // namespace internal

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_MEMORY_H_
