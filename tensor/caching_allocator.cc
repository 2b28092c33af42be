// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {
constexpr int64_t kMinimumCacheBytes = int64_t{64} << 20;

// Kept from step to step. Such a tensor, made at the end of the first step (an optimizer's state),
// would take a block that the second step's forward pass comes back for.
bool IsLongLived(MemoryCategory category) {
  return category == MemoryCategory::kParameter || category == MemoryCategory::kOptimizer;
}
}  // namespace

int64_t CachingAllocator::SizeClass(int64_t bytes) {
  const int64_t power = int64_t{1} << (63 - std::countl_zero(static_cast<uint64_t>(bytes)));
  const int64_t step = std::max<int64_t>(power / 8, 64);
  if (bytes > INT64_MAX - step) return bytes;
  return (bytes + step - 1) / step * step;
}

void* CachingAllocator::FromSystem(int64_t bytes, int64_t alignment) {
  void* block = nullptr;
  if (posix_memalign(&block, static_cast<size_t>(alignment), static_cast<size_t>(bytes)) != 0) {
    return nullptr;
  }
  return block;
}

void* CachingAllocator::Allocate(int64_t bytes, int64_t alignment, int /*stream*/,
                                 MemoryCategory category) {
  const int64_t size = SizeClass(bytes);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    live_bytes_ += size;
    auto found = free_blocks_.find(size);
    if (!IsLongLived(category) && found != free_blocks_.end() && !found->second.empty()) {
      void* block = found->second.back();
      found->second.pop_back();
      cached_bytes_ -= size;
      return block;
    }
    ++system_allocation_count_;
  }
  void* block = FromSystem(size, alignment);
  if (block == nullptr) {
    EmptyCache();
    block = FromSystem(size, alignment);
  }
  if (block == nullptr) {
    std::lock_guard<std::mutex> lock(mutex_);
    live_bytes_ -= size;
    throw ResourceExhaustedError(absl::StrCat("Allocate: the system has no ", bytes, " bytes"));
  }
  return block;
}

void CachingAllocator::Free(void* block, int64_t bytes, int /*stream*/) {
  {
    const int64_t size = SizeClass(bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    // Here rather than in Allocate, which counts a block before it knows that the system has one.
    peak_live_bytes_ = std::max(peak_live_bytes_, live_bytes_);
    live_bytes_ -= size;
    if (cached_bytes_ + size <= std::max(kMinimumCacheBytes, peak_live_bytes_)) {
      cached_bytes_ += size;
      free_blocks_[size].push_back(block);
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
    cached_bytes_ = 0;
  }
  for (auto& [size, list] : blocks) {
    for (void* block : list) std::free(block);
  }
}

int64_t CachingAllocator::CachedBytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return cached_bytes_;
}

int64_t CachingAllocator::SystemAllocationCount() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return system_allocation_count_;
}

}  // namespace lockstep
