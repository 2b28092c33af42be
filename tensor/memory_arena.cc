// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/memory_arena.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "lockstep/base/rounding.h"

namespace lockstep {
namespace {

// Memory comes from the system in pieces of this size and alignment, that of a huge page: where the
// system may use those (MADV_HUGEPAGE), a step spends less time on address translation (nano: a
// tenth) and no more memory than one piece at the end.
constexpr int64_t kCommitBytes = int64_t{2} << 20;

}  // namespace

MemoryArena::~MemoryArena() {
  for (const auto& [offset, part] : parts_) {
    if (part.state == State::kUsed) continue;
    // Cold addresses are not poisoned, and too many.
    if (part.state == State::kFree) {
      ASAN_UNPOISON_MEMORY_REGION(base_ + offset, static_cast<size_t>(part.bytes));
    }
    munmap(base_ + offset, static_cast<size_t>(part.bytes));
  }
}

bool MemoryArena::Reserve() {
  if (base_ != nullptr) return true;
  if (refused_) return false;
  const int64_t bytes = RoundUp(reserve_bytes_, kCommitBytes);
  void* range = mmap(nullptr, static_cast<size_t>(bytes + kCommitBytes), PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  refused_ = range == MAP_FAILED;
  if (refused_) return false;
  char* begin = static_cast<char*>(range);
  base_ = reinterpret_cast<char*>(RoundUp(reinterpret_cast<int64_t>(range), kCommitBytes));
  if (base_ > begin) munmap(begin, static_cast<size_t>(base_ - begin));
  munmap(base_ + bytes, static_cast<size_t>(begin + kCommitBytes - base_));
  reserved_bytes_ = bytes;
  Index(parts_.emplace(0, Part{bytes, State::kCold}).first);
  return true;
}

void MemoryArena::Index(Parts::iterator part) {
  const auto [offset, value] = *part;
  if (value.state == State::kCold) cold_.insert(offset);
  if (value.state != State::kFree) return;
  free_.insert({value.bytes, offset});
  free_bytes_ += value.bytes;
}

void MemoryArena::Unindex(Parts::iterator part) {
  const auto [offset, value] = *part;
  if (value.state == State::kCold) cold_.erase(offset);
  if (value.state != State::kFree) return;
  free_.erase({value.bytes, offset});
  free_bytes_ -= value.bytes;
}

void MemoryArena::Split(Parts::iterator part, int64_t bytes) {
  if (part->second.bytes == bytes) return;
  Unindex(part);
  const Part rest{part->second.bytes - bytes, part->second.state};
  part->second.bytes = bytes;
  Index(part);
  Index(parts_.emplace_hint(std::next(part), part->first + bytes, rest));
}

MemoryArena::Parts::iterator MemoryArena::SetState(Parts::iterator part, State state) {
  Unindex(part);
  part->second.state = state;
  if (state != State::kUsed) {
    if (const auto next = std::next(part); next != parts_.end() && next->second.state == state) {
      Unindex(next);
      part->second.bytes += next->second.bytes;
      parts_.erase(next);
    }
    if (part != parts_.begin() && std::prev(part)->second.state == state) {
      const auto previous = std::prev(part);
      Unindex(previous);
      previous->second.bytes += part->second.bytes;
      parts_.erase(part);
      part = previous;
    }
  }
  Index(part);
  return part;
}

bool MemoryArena::Commit(int64_t offset, int64_t bytes) {
  char* begin = base_ + offset;
  if (mprotect(begin, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE) != 0) return false;
  madvise(begin, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a wish: its result does not matter
  ASAN_POISON_MEMORY_REGION(begin, static_cast<size_t>(bytes));
  return true;
}

// A new mapping in place of the old one: its pages, and their share of what the system has
// promised, are given back.
bool MemoryArena::Decommit(int64_t offset, int64_t bytes) {
  return mmap(base_ + offset, static_cast<size_t>(bytes), PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool MemoryArena::IsTopmostFree(Parts::iterator part) const {
  const auto next = std::next(part);
  return next == parts_.end() ||
         (next->second.state == State::kCold && std::next(next) == parts_.end());
}

MemoryArena::Parts::iterator MemoryArena::FindFree(int64_t bytes) {
  Parts::iterator top = parts_.end();
  for (auto found = free_.lower_bound({bytes, 0}); found != free_.end(); ++found) {
    const auto part = parts_.find(found->second);
    if (!IsTopmostFree(part)) return part;
    top = part;
  }
  return top;
}

MemoryArena::Parts::iterator MemoryArena::MakeFree(int64_t bytes) {
  int64_t fewest = std::numeric_limits<int64_t>::max();
  Parts::iterator best = parts_.end();
  for (const int64_t offset : cold_) {
    const auto cold = parts_.find(offset);
    int64_t missing = bytes;
    if (cold != parts_.begin() && std::prev(cold)->second.state == State::kFree) {
      missing -= std::prev(cold)->second.bytes;
    }
    const int64_t committed = std::min(missing, cold->second.bytes);
    if (const auto next = std::next(cold);
        committed < missing && next != parts_.end() && next->second.state == State::kFree) {
      missing -= next->second.bytes;
    }
    if (committed < missing || committed >= fewest) continue;
    fewest = committed;
    best = cold;
  }
  if (best == parts_.end()) return best;
  // Up to the end of a piece, so that the next commit begins with a whole one.
  const int64_t end = RoundUp(best->first + fewest, kCommitBytes);
  Split(best, std::min(end - best->first, best->second.bytes));
  if (!Commit(best->first, best->second.bytes)) {
    SetState(best, State::kCold);
    return parts_.end();
  }
  ++system_allocation_count_;
  return SetState(best, State::kFree);
}

void* MemoryArena::Allocate(int64_t bytes) {
  if (bytes > reserve_bytes_ || !Reserve()) return nullptr;
  const int64_t size = RoundedSize(bytes);
  auto part = FindFree(size);
  if (part == parts_.end()) part = MakeFree(size);
  if (part == parts_.end()) return nullptr;
  Split(part, size);
  part = SetState(part, State::kUsed);
  ASAN_UNPOISON_MEMORY_REGION(base_ + part->first, static_cast<size_t>(bytes));
  return base_ + part->first;
}

void MemoryArena::Free(void* block) {
  const auto part = parts_.find(static_cast<char*>(block) - base_);
  ASAN_POISON_MEMORY_REGION(block, static_cast<size_t>(part->second.bytes));
  SetState(part, State::kFree);
}

void MemoryArena::FreeToSystem(void* block) {
  const auto part = parts_.find(static_cast<char*>(block) - base_);
  const bool cold = Decommit(part->first, part->second.bytes);
  SetState(part, cold ? State::kCold : State::kFree);
}

void MemoryArena::ReleaseFree() {
  // Those that the system does not take (its table of mappings is full) stay free.
  for (auto found = free_.begin(); found != free_.end();) {
    const auto part = parts_.find(found->second);
    ++found;
    if (Decommit(part->first, part->second.bytes)) SetState(part, State::kCold);
  }
}

}  // namespace lockstep
