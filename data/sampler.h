// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which rows a rank sees, and in which order.
//
//   auto sampler = std::make_shared<data::DistributedSampler>(
//       dataset->size(), data::SamplerOptions{.rank = comm.rank(), .world_size = comm.size()});
//
// Rank r takes positions r, r + W, r + 2W, ... of one order that all ranks agree on. So the k-th
// batch of all ranks together is the same set of rows for every world size with the same total.
#ifndef LOCKSTEP_DATA_SAMPLER_H_
#define LOCKSTEP_DATA_SAMPLER_H_

#include <cstdint>
#include <vector>

namespace lockstep::data {

// What happens when the row count is no multiple of the world size.
enum class Remainder {
  kPad,    // rows from the beginning repeat until every rank has equally many
  kDrop,   // the last rows are left out
  kExact,  // nothing repeats and nothing is left out: ranks differ by at most one. For evaluation;
           // training with it needs uneven inputs to be joined.
};

struct SamplerOptions {
  int64_t rank = 0;
  int64_t world_size = 1;
  bool shuffle = true;
  uint64_t seed = 0;  // the same on all ranks
  Remainder remainder = Remainder::kPad;
};

// Not thread-safe; a loader uses it on the thread that calls the loader.
class DistributedSampler {
 public:
  // Throws InvalidArgument unless size >= 0 and 0 <= rank < world_size.
  DistributedSampler(int64_t size, const SamplerOptions& options);

  // Orders depend on (seed, epoch). A loader advances it after each pass; setting it changes the
  // next pass. Throws InvalidArgument when negative.
  void SetEpoch(int64_t epoch);
  int64_t epoch() const { return epoch_; }

  // This rank's rows in this epoch, in order.
  std::vector<int64_t> Indices() const;
  // How many that are.
  int64_t Count() const;

  const SamplerOptions& options() const { return options_; }

 private:
  int64_t size_;
  SamplerOptions options_;
  int64_t epoch_ = 0;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_SAMPLER_H_
