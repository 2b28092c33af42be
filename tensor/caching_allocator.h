// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The allocator of the CPU and of host memory: keeps freed blocks, so that the next step finds them
// still in cache and asks the system for nothing.
//
// Blocks below kLargeBytes are kept by size class, newest first. Larger ones are cut from an arena
// whose free parts serve any size. Those of parameters and optimizer state, which stay, come from
// an arena of their own (small ones from the system), and so never lie between blocks that come and
// go with a step.
#ifndef LOCKSTEP_TENSOR_CACHING_ALLOCATOR_H_
#define LOCKSTEP_TENSOR_CACHING_ALLOCATOR_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/memory_arena.h"

namespace lockstep {

// Thread-safe. Size classes lie an eighth of a power of two apart (a block is at most 12.5 % larger
// than asked for), and 64 bytes apart up to 512; large blocks are whole pages. Cached bytes never
// exceed the larger of 64 MiB and the most bytes that were in use at once; blocks beyond that go
// back to the system. AddressSanitizer sees cached blocks as freed.
class CachingAllocator : public Allocator {
 public:
  static constexpr int64_t kLargeBytes = int64_t{256} << 10;

  CachingAllocator();
  // Gives the cached blocks back; those in use stay their holders'.
  ~CachingAllocator() override { EmptyCache(); }

  void* Allocate(int64_t bytes, int64_t alignment, int stream, MemoryCategory category) override;
  void Free(void* block, int64_t bytes, int stream) override;
  void EmptyCache() override;
  int64_t CachedBytes() const override;
  int64_t SystemAllocationCount() const override;

  static int64_t SizeClass(int64_t bytes);

 private:
  void* AllocateClass(int64_t size, int64_t alignment, bool long_lived);
  void* AllocateLarge(int64_t bytes, int64_t alignment, bool long_lived);
  // Whether a block of `size` that was just freed may stay. Requires mutex_; counts the block as
  // freed.
  bool Keeps(int64_t size);
  MemoryArena* ArenaOf(const void* block);

  mutable std::mutex mutex_;
  absl::flat_hash_map<int64_t, std::vector<void*>> free_blocks_;  // by size class
  MemoryArena passing_;
  MemoryArena long_lived_;
  int64_t class_cached_bytes_ = 0;
  int64_t live_bytes_ = 0;
  int64_t peak_live_bytes_ = 0;
  int64_t system_allocation_count_ = 0;  // without the arenas'
};

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_CACHING_ALLOCATOR_H_
