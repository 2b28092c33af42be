// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/caching_allocator.h"

#include <sanitizer/asan_interface.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/rounding.h"

namespace lockstep {
namespace {
constexpr int64_t kMinimumCacheBytes = int64_t{64} << 20;

// Kept from step to step. Such a tensor, made at the end of the first step (an optimizer's state),
// would take a block that the second step's forward pass comes back for.
bool IsLongLived(MemoryCategory category) {
  return category == MemoryCategory::kParameter || category == MemoryCategory::kOptimizer;
}

// Addresses for an arena: twice what the machine has memory, since free parts of it may be too
// small for what is asked for.
int64_t ArenaBytes() {
  return 2 * int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
}

void* FromSystem(int64_t bytes, int64_t alignment) {
  void* block = nullptr;
  if (posix_memalign(&block, static_cast<size_t>(alignment), static_cast<size_t>(bytes)) != 0) {
    return nullptr;
  }
  return block;
}
}  // namespace

CachingAllocator::CachingAllocator() : passing_(ArenaBytes()), long_lived_(ArenaBytes()) {}

int64_t CachingAllocator::SizeClass(int64_t bytes) {
  const int64_t power = int64_t{1} << (63 - std::countl_zero(static_cast<uint64_t>(bytes)));
  const int64_t step = std::max<int64_t>(power / 8, 64);
  if (bytes > INT64_MAX - step) return bytes;
  return RoundUp(bytes, step);
}

MemoryArena* CachingAllocator::ArenaOf(const void* block) {
  if (passing_.Contains(block)) return &passing_;
  return long_lived_.Contains(block) ? &long_lived_ : nullptr;
}

void* CachingAllocator::AllocateLarge(int64_t bytes, int64_t alignment, bool long_lived) {
  if (alignment > MemoryArena::kPageBytes) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  void* block = (long_lived ? long_lived_ : passing_).Allocate(bytes);
  if (block != nullptr) live_bytes_ += MemoryArena::RoundedSize(bytes);
  return block;
}

void* CachingAllocator::AllocateClass(int64_t bytes, int64_t alignment, bool long_lived) {
  const int64_t size = SizeClass(bytes);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    live_bytes_ += size;
    auto found = free_blocks_.find(size);
    if (!long_lived && found != free_blocks_.end() && !found->second.empty()) {
      void* block = found->second.back();
      found->second.pop_back();
      class_cached_bytes_ -= size;
      ASAN_UNPOISON_MEMORY_REGION(block, static_cast<size_t>(bytes));
      return block;
    }
    ++system_allocation_count_;
  }
  void* block = FromSystem(size, alignment);
  if (block == nullptr) {
    std::lock_guard<std::mutex> lock(mutex_);
    live_bytes_ -= size;
  }
  return block;
}

void* CachingAllocator::Allocate(int64_t bytes, int64_t alignment, int /*stream*/,
                                 MemoryCategory category) {
  const bool long_lived = IsLongLived(category);
  for (const bool emptied : {false, true}) {
    if (emptied) EmptyCache();
    void* block = bytes < kLargeBytes ? nullptr : AllocateLarge(bytes, alignment, long_lived);
    if (block == nullptr) block = AllocateClass(bytes, alignment, long_lived);
    if (block != nullptr) return block;
  }
  throw ResourceExhaustedError(absl::StrCat("Allocate: the system has no ", bytes, " bytes"));
}

bool CachingAllocator::Keeps(int64_t size) {
  const int64_t cached = class_cached_bytes_ + passing_.free_bytes() + long_lived_.free_bytes();
  // Here rather than in Allocate, which counts a block before it knows that the system has one.
  peak_live_bytes_ = std::max(peak_live_bytes_, live_bytes_);
  live_bytes_ -= size;
  return cached + size <= std::max(kMinimumCacheBytes, peak_live_bytes_);
}

void CachingAllocator::Free(void* block, int64_t bytes, int /*stream*/) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (MemoryArena* arena = bytes < kLargeBytes ? nullptr : ArenaOf(block)) {
      if (Keeps(MemoryArena::RoundedSize(bytes))) {
        arena->Free(block);
      } else {
        arena->FreeToSystem(block);
      }
      return;
    }
    const int64_t size = SizeClass(bytes);
    if (Keeps(size)) {
      class_cached_bytes_ += size;
      free_blocks_[size].push_back(block);
      ASAN_POISON_MEMORY_REGION(block, static_cast<size_t>(size));
      return;
    }
  }
  std::free(block);
}

void CachingAllocator::EmptyCache() {
  absl::flat_hash_map<int64_t, std::vector<void*>> blocks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    blocks.swap(free_blocks_);
    class_cached_bytes_ = 0;
    passing_.ReleaseFree();
    long_lived_.ReleaseFree();
  }
  for (auto& [size, list] : blocks) {
    for (void* block : list) std::free(block);
  }
}

int64_t CachingAllocator::CachedBytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return class_cached_bytes_ + passing_.free_bytes() + long_lived_.free_bytes();
}

int64_t CachingAllocator::SystemAllocationCount() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return system_allocation_count_ + passing_.system_allocation_count() +
         long_lived_.system_allocation_count();
}

}  // namespace lockstep
