// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How many bytes a rank of data-parallel training needs, measured: ranks are threads, each with a
// device of its own.
#ifndef LOCKSTEP_TESTS_EQUIVALENCE_SHARDED_MEMORY_H_
#define LOCKSTEP_TESTS_EQUIVALENCE_SHARDED_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/models/gpt2.h"
#include "lockstep/tensor/memory.h"

namespace lockstep::equivalence {

struct MemoryRun {
  models::Gpt2Config config = {};
  // "ddp", "zero1", "fsdp_grad_op", "fsdp" or "fsdp_offload"; units are blocks.
  std::string strategy = "fsdp";
  int ranks = 2;
  int64_t rows = 1;  // of each rank
  int steps = 2;
  // Of stages 0 and 1.
  int64_t bucket_bytes = int64_t{25} << 20;
  // Peaks are those of later steps. In the first one DistributedDataParallel learns the order in
  // which gradients come, and has the buckets of before and after for a moment.
  bool without_first_step = false;
  bool checkpointed = false;                             // activations of blocks are recomputed
  bool deferred = false;                                 // parameters are made shard by shard
  std::optional<int64_t> capacity_bytes = std::nullopt;  // of each device
};

struct RankMemory {
  // Between backward and step, of the last step.
  int64_t parameter_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t state_bytes() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
  // The same on the host device, which all ranks share, over the ranks.
  int64_t host_bytes = 0;
  // Since before the first step but for `construction_peak_bytes`.
  int64_t construction_peak_bytes = 0;
  MemoryStats peaks;
  // Beside the state, what was there at most of gathered parameters, gradients and buckets: the sum
  // over their categories, whose peaks may be apart.
  int64_t working_bytes() const;
  double loss = 0;  // of the last step
};

// One entry a rank. Throws what the first rank that failed has thrown.
std::vector<RankMemory> TrainAndMeasure(const MemoryRun& run);

// Bytes of all parameters, of the largest unit (a block), of the root, and of the largest
// parameter.
struct UnitBytes {
  int64_t all = 0;
  int64_t block = 0;
  int64_t root = 0;
  int64_t largest = 0;
};
UnitBytes UnitBytesOf(const models::Gpt2Config& config);

// What state_bytes() should be by the ZeRO paper's formulas, for float32 and AdamW.
double FormulaBytes(const std::string& strategy, int64_t parameter_bytes, int ranks);

}  // namespace lockstep::equivalence

#endif  // LOCKSTEP_TESTS_EQUIVALENCE_SHARDED_MEMORY_H_
