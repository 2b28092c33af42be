// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How many bytes a rank of sharded training will hold, from a module that may have none itself.
//
//   std::shared_ptr<models::Gpt2> model;
//   {
//     nn::DeferredInitScope deferred;
//     model = std::make_shared<models::Gpt2>(config);
//   }
//   strategies::MemoryEstimate bytes = strategies::EstimateMemory(
//       *model, {.wrap_policy = strategies::WrapByType<models::Gpt2Block>()}, {.ranks = 8});
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_MEMORY_ESTIMATE_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_MEMORY_ESTIMATE_H_

#include <cstdint>

#include "lockstep/nn/module.h"
#include "lockstep/strategies/fully_sharded_data_parallel/options.h"

namespace lockstep::strategies {

struct MemoryEstimateOptions {
  int ranks = 1;  // that share: with a hybrid strategy those of the mesh dimension "shard"
  // Values that the optimizer keeps for each element, of the parameter's dtype, float32 for 16-bit
  // ones: 2 for Adam and AdamW, 1 for SGD with momentum.
  int optimizer_values = 2;
  // With kNoShard, as DistributedDataParallel: a ZeroOptimizer shares its state among the ranks.
  bool zero_optimizer = false;
};

struct MemoryEstimate {
  // Of the training state, padding included: on the compute device, or on the host device with
  // cpu_offload.
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t state() const { return parameters + gradients + optimizer; }
  // On the compute device beside these, at most, outside of NoSync and SummonFullParameters: units
  // that are gathered (the root, three more and those that stay) and sums of gradients (the root's
  // and two units'; with cpu_offload one unit's, and parts on their way).
  int64_t gathered = 0;
};

// Buffers and activations are not in it. Throws as FullyShardedDataParallel does for options that
// the module does not fit, and InvalidArgument for numbers below 1 (optimizer_values: 0), for a
// zero_optimizer without kNoShard, and for reshard_ranks that do not divide the ranks.
MemoryEstimate EstimateMemory(nn::Module& module, const FullyShardedDataParallelOptions& options,
                              const MemoryEstimateOptions& estimate);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_MEMORY_ESTIMATE_H_
