// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/flat_layout.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::strategies {
namespace {

using Piece = FlatLayout::Piece;

TEST(FlatLayoutTest, PiecesCoverEachElementOnceAndInOrder) {
  const std::vector<std::vector<int64_t>> lists = {
      {},   {0},          {1},         {0, 0},        {1, 0, 1},       {15},      {16},
      {17}, {16, 16, 16}, {33, 1, 64}, {0, 7, 0, 90}, {5, 130, 2, 31}, {1000, 1},
  };
  for (const std::vector<int64_t>& numels : lists) {
    for (int64_t ranks = 1; ranks <= 8; ++ranks) {
      const FlatLayout layout(numels, ranks);
      EXPECT_EQ(layout.ranks(), ranks);
      EXPECT_EQ(layout.numel(), ranks * layout.shard_numel());
      EXPECT_EQ(layout.shard_numel() % FlatLayout::kAlignment, 0);
      // Which parameter's element lies at a place of the flat one.
      std::vector<int64_t> owner(static_cast<size_t>(layout.numel()), -1);
      for (size_t i = 0; i < numels.size(); ++i) {
        EXPECT_EQ(layout.offset(i) % FlatLayout::kAlignment, 0);
        int64_t next = 0;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const Piece piece = layout.PieceOf(i, rank);
          if (piece.numel() == 0) {
            EXPECT_EQ(piece, Piece());
            continue;
          }
          EXPECT_EQ(piece.begin, next);
          next = piece.end;
          EXPECT_GE(piece.offset, 0);
          EXPECT_LE(piece.offset + piece.numel(), layout.shard_numel());
          for (int64_t k = 0; k < piece.numel(); ++k) {
            const int64_t place = rank * layout.shard_numel() + piece.offset + k;
            EXPECT_EQ(place, layout.offset(i) + piece.begin + k);
            EXPECT_EQ(owner[static_cast<size_t>(place)], -1);
            owner[static_cast<size_t>(place)] = static_cast<int64_t>(i);
          }
        }
        EXPECT_EQ(next, numels[i]) << "parameter " << i << " of " << ranks << " ranks";
      }
    }
  }
}

// No rank has more than the ranks' share of the aligned sizes, rounded up.
TEST(FlatLayoutTest, PaddingIsSmall) {
  for (int64_t ranks = 1; ranks <= 8; ++ranks) {
    for (int64_t numel = 0; numel < 300; numel += 7) {
      const FlatLayout layout({numel, 3}, ranks);
      const int64_t aligned = (numel + 15) / 16 * 16 + 16;
      EXPECT_LT(layout.numel() - aligned, ranks * FlatLayout::kAlignment);
      EXPECT_GE(layout.numel(), aligned);
    }
  }
}

TEST(FlatLayoutTest, AreAsTheHeaderDraws) {
  const FlatLayout layout({3 * 16, 2 * 16 + 8, 5}, 4);
  EXPECT_EQ(layout.offset(0), 0);
  EXPECT_EQ(layout.offset(1), 48);
  EXPECT_EQ(layout.offset(2), 96);
  EXPECT_EQ(layout.shard_numel(), 32);
  EXPECT_EQ(layout.PieceOf(0, 0), (Piece{0, 32, 0}));
  EXPECT_EQ(layout.PieceOf(0, 1), (Piece{32, 48, 0}));
  EXPECT_EQ(layout.PieceOf(1, 1), (Piece{0, 16, 16}));
  EXPECT_EQ(layout.PieceOf(1, 2), (Piece{16, 40, 0}));
  EXPECT_EQ(layout.PieceOf(2, 2), Piece());
  EXPECT_EQ(layout.PieceOf(2, 3), (Piece{0, 5, 0}));
}

}  // namespace
}  // namespace lockstep::strategies
