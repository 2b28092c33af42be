// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/flat_layout.h"

#include <algorithm>

#include "lockstep/base/rounding.h"

namespace lockstep::strategies {

FlatLayout::FlatLayout(const std::vector<int64_t>& numels, int64_t ranks)
    : ranks_(ranks), numels_(numels) {
  int64_t end = 0;
  for (const int64_t numel : numels_) {
    offsets_.push_back(end);
    end += RoundUp(numel, kAlignment);
  }
  shard_numel_ = RoundUp(CeilDiv(end, ranks), kAlignment);
}

FlatLayout::Piece FlatLayout::PieceOf(size_t i, int64_t rank) const {
  const int64_t first = rank * shard_numel_;
  const int64_t begin = std::max(offsets_[i], first);
  const int64_t end = std::min(offsets_[i] + numels_[i], first + shard_numel_);
  if (begin >= end) return {};
  return {begin - offsets_[i], end - offsets_[i], begin - first};
}

}  // namespace lockstep::strategies
