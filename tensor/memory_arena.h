// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// An arena: one long range of addresses from which large blocks are cut, and whose free parts grow
// together again, so that the memory of any freed block serves a block of any other size.
//
//   MemoryArena arena(int64_t{1} << 36);  // addresses only; memory comes as blocks ask for it
//   void* block = arena.Allocate(5 << 20);
//   arena.Free(block);
//   arena.ReleaseFree();
//
// Part of CachingAllocator, whose lock it needs.
#ifndef LOCKSTEP_TENSOR_MEMORY_ARENA_H_
#define LOCKSTEP_TENSOR_MEMORY_ARENA_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "lockstep/base/rounding.h"

namespace lockstep {

// Not thread-safe. The range consists of parts that are used, free (the system's memory, kept) or
// cold (addresses without memory); no two free and no two cold parts are neighbours. A block takes
//   1. the smallest free part that fits, the lowest of equal ones, but not the topmost free part;
//   2. else the topmost free part, if it fits;
//   3. else it turns cold addresses into memory: where the fewest are needed, counting the free
//      parts beside them.
// So a program that repeats its calls gets, in the second round, the addresses of the first one,
// whatever was freed between: growing at the top and cutting from the top are the same.
class MemoryArena {
 public:
  // What sizes are rounded up to: the system's page.
  static constexpr int64_t kPageBytes = 4096;

  // Reserves addresses at the first Allocate. Where the system refuses (a limit on the address
  // space), the arena stays empty.
  explicit MemoryArena(int64_t reserve_bytes) : reserve_bytes_(reserve_bytes) {}
  // Gives everything back but the blocks in use.
  ~MemoryArena();
  MemoryArena(const MemoryArena&) = delete;
  MemoryArena& operator=(const MemoryArena&) = delete;

  static int64_t RoundedSize(int64_t bytes) { return RoundUp(bytes, kPageBytes); }

  // A block that begins a page; null when the addresses or the system's memory are used up.
  // REQUIRES: bytes > 0.
  void* Allocate(int64_t bytes);
  // REQUIRES: Contains(block), which Allocate returned and which is in use.
  void Free(void* block);
  // Frees the block and gives its memory back to the system.
  void FreeToSystem(void* block);
  bool Contains(const void* address) const {
    return address >= base_ && address < base_ + reserved_bytes_;
  }

  // Gives all free parts back to the system.
  void ReleaseFree();

  int64_t free_bytes() const { return free_bytes_; }
  // How often Allocate turned cold addresses into memory.
  int64_t system_allocation_count() const { return system_allocation_count_; }

 private:
  enum class State : uint8_t { kUsed, kFree, kCold };
  struct Part {
    int64_t bytes;
    State state;
  };
  // By offset from base_; without gaps.
  using Parts = std::map<int64_t, Part>;

  bool Reserve();
  Parts::iterator FindFree(int64_t bytes);
  Parts::iterator MakeFree(int64_t bytes);
  bool Commit(int64_t offset, int64_t bytes);
  bool Decommit(int64_t offset, int64_t bytes);
  // Changes the state of a part, joins it with equal neighbours, and returns the whole.
  Parts::iterator SetState(Parts::iterator part, State state);
  // Cuts `part` so that it keeps `bytes`.
  void Split(Parts::iterator part, int64_t bytes);
  void Index(Parts::iterator part);
  void Unindex(Parts::iterator part);
  bool IsTopmostFree(Parts::iterator part) const;

  const int64_t reserve_bytes_;
  char* base_ = nullptr;
  int64_t reserved_bytes_ = 0;
  bool refused_ = false;
  Parts parts_;
  std::set<std::pair<int64_t, int64_t>> free_;  // {bytes, offset} of the free parts
  std::set<int64_t> cold_;                      // offsets of the cold parts
  int64_t free_bytes_ = 0;
  int64_t system_allocation_count_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_MEMORY_ARENA_H_
