// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The allocator of the CPU and of host memory: keeps freed blocks by size class, newest first, so
// that the next step finds them still in cache and asks the system for nothing. Parameters and
// optimizer state, which stay, are never served from kept blocks, which come and go with a step.
#ifndef LOCKSTEP_TENSOR_CACHING_ALLOCATOR_H_
#define LOCKSTEP_TENSOR_CACHING_ALLOCATOR_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lockstep/tensor/memory.h"

namespace lockstep {

// Thread-safe. Size classes lie an eighth of a power of two apart (a block is at most 12.5 % larger
// than asked for), and 64 bytes apart up to 512. Cached bytes never exceed the larger of 64 MiB and
// the most bytes that were in use at once; blocks beyond that go back to the system.
class CachingAllocator : public Allocator {
 public:
  // Gives the cached blocks back; those in use stay their holders'.
  ~CachingAllocator() override { EmptyCache(); }

  void* Allocate(int64_t bytes, int64_t alignment, int stream, MemoryCategory category) override;
  void Free(void* block, int64_t bytes, int stream) override;
  void EmptyCache() override;
  int64_t CachedBytes() const override;
  int64_t SystemAllocationCount() const override;

  static int64_t SizeClass(int64_t bytes);

 private:
  void* FromSystem(int64_t bytes, int64_t alignment);

  mutable std::mutex mutex_;
  absl::flat_hash_map<int64_t, std::vector<void*>> free_blocks_;  // by size class
  int64_t cached_bytes_ = 0;
  int64_t live_bytes_ = 0;
  int64_t peak_live_bytes_ = 0;
  int64_t system_allocation_count_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_CACHING_ALLOCATOR_H_
