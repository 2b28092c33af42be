// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/sampler.h"

#include <numeric>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/philox.h"

namespace lockstep::data {
namespace {

// A permutation of [0, size) from (seed, epoch): Fisher and Yates, with one Philox block a draw.
std::vector<int64_t> Permutation(int64_t size, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = size - 1; i > 0; --i) {
    const auto words = Philox4x32(seed, static_cast<uint64_t>(epoch), static_cast<uint64_t>(i));
    const uint64_t random = static_cast<uint64_t>(words[0]) << 32 | words[1];
    // Multiply-shift: the bias of 2^-64 * i is below anything measurable.
    const auto product = absl::uint128(random) * static_cast<uint64_t>(i + 1);
    std::swap(order[static_cast<size_t>(i)],
              order[static_cast<size_t>(absl::Uint128High64(product))]);
  }
  return order;
}

}  // namespace

DistributedSampler::DistributedSampler(int64_t size, const SamplerOptions& options)
    : size_(size), options_(options) {
  if (size < 0 || options.world_size < 1 || options.rank < 0 ||
      options.rank >= options.world_size) {
    throw InvalidArgumentError(absl::StrCat("DistributedSampler: ", size, " rows, rank ",
                                            options.rank, " of ", options.world_size,
                                            "; give rows >= 0 and 0 <= rank < world_size"));
  }
}

void DistributedSampler::SetEpoch(int64_t epoch) {
  if (epoch < 0) {
    throw InvalidArgumentError(absl::StrCat("SetEpoch: ", epoch, "; give an epoch >= 0"));
  }
  epoch_ = epoch;
}

int64_t DistributedSampler::Count() const {
  const int64_t whole = size_ / options_.world_size;
  const int64_t rest = size_ % options_.world_size;
  switch (options_.remainder) {
    case Remainder::kPad:
      return whole + (rest > 0);
    case Remainder::kDrop:
      return whole;
    case Remainder::kExact:
      break;
  }
  return whole + (options_.rank < rest);
}

std::vector<int64_t> DistributedSampler::Indices() const {
  std::vector<int64_t> order;
  if (options_.shuffle) order = Permutation(size_, options_.seed, epoch_);
  std::vector<int64_t> mine(static_cast<size_t>(Count()));
  for (size_t i = 0; i < mine.size(); ++i) {
    const int64_t position =
        (options_.rank + static_cast<int64_t>(i) * options_.world_size) % size_;
    mine[i] = options_.shuffle ? order[static_cast<size_t>(position)] : position;
  }
  return mine;
}

}  // namespace lockstep::data
