// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/memory_arena.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kReserve = int64_t{1} << 30;

char* Take(MemoryArena& arena, int64_t bytes) { return static_cast<char*>(arena.Allocate(bytes)); }

TEST(MemoryArenaTest, FreedNeighboursServeALargerBlock) {
  MemoryArena arena(kReserve);
  char* a = Take(arena, 4 * kMiB);
  char* b = Take(arena, 6 * kMiB);
  char* end = Take(arena, 2 * kMiB);
  EXPECT_EQ(b, a + 4 * kMiB);
  EXPECT_EQ(arena.system_allocation_count(), 3);
  EXPECT_EQ(arena.free_bytes(), 0);
  for (const bool first_a : {true, false}) {
    arena.Free(first_a ? a : b);
    arena.Free(first_a ? b : a);
    EXPECT_EQ(arena.free_bytes(), 10 * kMiB);
    EXPECT_EQ(Take(arena, 10 * kMiB), a);
    arena.Free(a);
    EXPECT_EQ(Take(arena, 4 * kMiB), a);
    EXPECT_EQ(Take(arena, 6 * kMiB), b);
  }
  EXPECT_EQ(arena.system_allocation_count(), 3);
  for (char* block : {a, b, end}) arena.Free(block);
}

TEST(MemoryArenaTest, TakesTheSmallestPartThatFitsAndTheTopLast) {
  MemoryArena arena(kReserve);
  char* large = Take(arena, 8 * kMiB);
  char* wall = Take(arena, 2 * kMiB);
  char* small = Take(arena, 4 * kMiB);
  char* wall2 = Take(arena, 2 * kMiB);
  char* top = Take(arena, 2 * kMiB);
  for (char* block : {large, small, top}) arena.Free(block);
  // The top part has this size exactly and is not taken.
  EXPECT_EQ(Take(arena, 2 * kMiB), small);
  EXPECT_EQ(Take(arena, 3 * kMiB), large);
  EXPECT_EQ(Take(arena, 4 * kMiB), large + 3 * kMiB);
  // Only the two MiB that the free top lacks come from the system.
  const int64_t before = arena.free_bytes();
  EXPECT_EQ(Take(arena, 4 * kMiB), top);
  EXPECT_EQ(arena.free_bytes(), before - 2 * kMiB);
  EXPECT_EQ(arena.system_allocation_count(), 6);
  EXPECT_LT(wall, wall2);
}

// Round after round of the same calls, in an order that leaves holes: the first one's addresses.
TEST(MemoryArenaTest, ARepeatedRoundGetsTheSameBlocks) {
  MemoryArena arena(kReserve);
  std::vector<char*> first_round;
  int64_t system_allocations = 0;
  for (int round = 0; round < 4; ++round) {
    std::vector<char*> all;
    std::map<int, char*> held;
    uint32_t state = 12345;
    for (int i = 0; i < 400; ++i) {
      state = state * 1664525u + 1013904223u;
      const int slot = static_cast<int>(state >> 8) % 37;
      if (const auto found = held.find(slot); found != held.end()) {
        arena.Free(found->second);
        held.erase(found);
        continue;
      }
      char* block = Take(arena, 1 + (state >> 12) % (3 * kMiB));
      ASSERT_NE(block, nullptr);
      all.push_back(held[slot] = block);
    }
    for (const auto& [slot, block] : held) arena.Free(block);
    if (round == 0) {
      first_round = all;
      system_allocations = arena.system_allocation_count();
    }
    EXPECT_EQ(all, first_round) << "round " << round;
    EXPECT_EQ(arena.system_allocation_count(), system_allocations) << "round " << round;
  }
}

// Blocks keep their bytes, whatever is allocated, freed and given back around them.
TEST(MemoryArenaTest, BlocksDoNotOverlap) {
  MemoryArena arena(kReserve);
  struct Block {
    char* data;
    int64_t bytes;
    int value;
  };
  std::map<int, Block> held;
  uint32_t state = 99;
  for (int i = 0; i < 3000; ++i) {
    state = state * 1664525u + 1013904223u;
    const int slot = static_cast<int>(state >> 8) % 23;
    if (const auto found = held.find(slot); found != held.end()) {
      const Block block = found->second;
      for (const int64_t at : {int64_t{0}, block.bytes / 2, block.bytes - 1}) {
        ASSERT_EQ(block.data[at], static_cast<char>(block.value)) << "block " << block.value;
      }
      (state >> 5) % 4 == 0 ? arena.FreeToSystem(block.data) : arena.Free(block.data);
      held.erase(found);
      if (i % 50 == 0) arena.ReleaseFree();
      continue;
    }
    const int64_t bytes = 1 + (state >> 14) % (64 << 10);
    char* data = Take(arena, bytes);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % MemoryArena::kPageBytes, 0u);
    std::memset(data, i, static_cast<size_t>(bytes));
    held[slot] = {data, bytes, i};
  }
}

TEST(MemoryArenaTest, FreePartsGoBackToTheSystemAndComeAgain) {
  MemoryArena arena(kReserve);
  char* a = Take(arena, 4 * kMiB);
  char* b = Take(arena, 4 * kMiB);
  char* c = Take(arena, 4 * kMiB);
  std::memset(a, 1, 12 * kMiB);
  arena.Free(a);
  arena.ReleaseFree();
  EXPECT_EQ(arena.free_bytes(), 0);
  arena.FreeToSystem(c);
  EXPECT_EQ(arena.free_bytes(), 0);
  EXPECT_EQ(b[4 * kMiB - 1], 1);
  EXPECT_EQ(arena.system_allocation_count(), 3);
  // What was given back is new memory: zero, and counted.
  EXPECT_EQ(Take(arena, 4 * kMiB), a);
  EXPECT_EQ(a[0], 0);
  EXPECT_EQ(a[4 * kMiB - 1], 0);
  EXPECT_EQ(arena.system_allocation_count(), 4);
  // Free parts on both sides of cold addresses count: a hole of [1 free, 2 cold, 1 free].
  arena.FreeToSystem(a);
  char* low = Take(arena, 2 * kMiB);
  char* high = Take(arena, 2 * kMiB);
  EXPECT_EQ(low, a);
  EXPECT_EQ(high, a + 2 * kMiB);
  arena.FreeToSystem(low);
  arena.Free(high);
  const int64_t before = arena.system_allocation_count();
  EXPECT_EQ(Take(arena, 4 * kMiB), a);
  EXPECT_EQ(arena.system_allocation_count(), before + 1);
  EXPECT_EQ(arena.free_bytes(), 0);
}

TEST(MemoryArenaTest, NoAddressesLeftIsNull) {
  MemoryArena arena(8 * kMiB);
  EXPECT_EQ(arena.Allocate(9 * kMiB), nullptr);
  EXPECT_EQ(arena.Allocate(INT64_MAX), nullptr);
  char* a = Take(arena, 5 * kMiB);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(arena.Allocate(4 * kMiB), nullptr);
  EXPECT_TRUE(arena.Contains(a));
  EXPECT_TRUE(arena.Contains(a + 8 * kMiB - 1));
  EXPECT_FALSE(arena.Contains(a + 8 * kMiB));
  EXPECT_FALSE(arena.Contains(a - 1));
  arena.Free(a);
  EXPECT_EQ(Take(arena, 8 * kMiB), a);
}

TEST(MemoryArenaTest, AnAddressSpaceThatIsRefusedLeavesItEmpty) {
  MemoryArena arena(int64_t{1} << 60);
  EXPECT_EQ(arena.Allocate(kMiB), nullptr);
  EXPECT_FALSE(arena.Contains(&arena));
  EXPECT_FALSE(arena.Contains(nullptr));
  arena.ReleaseFree();
  EXPECT_EQ(arena.free_bytes(), 0);
}

}  // namespace
}  // namespace lockstep
