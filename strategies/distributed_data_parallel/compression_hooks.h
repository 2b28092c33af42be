// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Communication hooks that send less: 16-bit gradients, or none.
//
//   DistributedDataParallel ddp(model, world, {
//       .communication_hook = std::make_shared<CompressionHook>(DType::kBFloat16)});
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_COMPRESSION_HOOKS_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_COMPRESSION_HOOKS_H_

#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/work.h"
#include "lockstep/strategies/distributed_data_parallel/communication_hook.h"
#include "lockstep/strategies/distributed_data_parallel/gradient_bucket.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// Sends nothing, so that every rank goes on with its own gradients: what a step would take with
// communication that costs nothing. For measuring; the ranks' parameters drift apart.
class NoOpHook final : public CommunicationHook {
 public:
  comm::Work Reduce(GradientBucket& bucket, comm::Communicator& group) override;
  bool allows_passes_at_once() const override { return true; }
};

// Rounds a bucket to a 16-bit type, averages that and converts it back: half the bytes of float32,
// a quarter of float64's. The sum is accumulated in float32 and rounded once, so that nothing
// overflows on the way; what is above float16's largest number (65504) becomes an infinity.
// Buckets of that type already go as they are. Keeps a buffer of the compressed size.
class CompressionHook final : public CommunicationHook {
 public:
  // Throws InvalidArgument unless `dtype` is float16 or bfloat16.
  explicit CompressionHook(DType dtype);

  comm::Work Reduce(GradientBucket& bucket, comm::Communicator& group) override;
  void OnNewBuckets(const std::vector<GradientBucket*>& buckets) override;

 private:
  DType dtype_;
  std::vector<Tensor> compressed_;  // of each bucket; undefined until it is needed
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_COMPRESSION_HOOKS_H_
