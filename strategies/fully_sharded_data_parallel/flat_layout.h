// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Where the elements of several parameters lie in one flat one, and which of them each rank keeps.
// Pure arithmetic.
//
//   flat:   | a a a . | b b b b | b b . . | c . . . |      (. padding)
//   shards: |  rank 0 |  rank 1 |  rank 2 |  rank 3 |
//
// Parameters begin at multiples of kAlignment elements, so that kernels find them aligned. Shards
// are equally large; the last ones may be padding only.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_FLAT_LAYOUT_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_FLAT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::strategies {

class FlatLayout {
 public:
  static constexpr int64_t kAlignment = 16;

  // `numels` may contain zeros. REQUIRES ranks >= 1.
  FlatLayout(const std::vector<int64_t>& numels, int64_t ranks);

  int64_t ranks() const { return ranks_; }
  int64_t shard_numel() const { return shard_numel_; }
  int64_t numel() const { return shard_numel_ * ranks_; }  // padding included
  // Of parameter `i` in the flat one.
  int64_t offset(size_t i) const { return offsets_[i]; }

  // The elements [begin, end) of a parameter, row-major, that lie in a rank's shard, from element
  // `offset` of the shard on. Empty: begin == end == offset == 0.
  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t offset = 0;
    int64_t numel() const { return end - begin; }
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  Piece PieceOf(size_t i, int64_t rank) const;

 private:
  int64_t ranks_;
  std::vector<int64_t> numels_;
  std::vector<int64_t> offsets_;
  int64_t shard_numel_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_FLAT_LAYOUT_H_
