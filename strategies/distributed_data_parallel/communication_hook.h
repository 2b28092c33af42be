// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// CommunicationHook: how a bucket of gradients becomes the average over the ranks.
//
//   class Halved : public strategies::CommunicationHook {
//     comm::Work Reduce(strategies::GradientBucket& bucket, comm::Communicator& group) override {
//       MulInPlace(bucket.buffer(), 0.5);
//       return group.AllReduce(bucket.buffer(), {.op = comm::ReduceOp::kAverage});
//     }
//   };
//   DistributedDataParallel ddp(model, world, {.communication_hook = std::make_shared<Halved>()});
//
// compression_hooks.h and power_sgd.h have ready ones. Every rank gives a hook of the same kind and
// options. A hook that keeps something is of one DistributedDataParallel at a time.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_COMMUNICATION_HOOK_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_COMMUNICATION_HOOK_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/work.h"
#include "lockstep/strategies/distributed_data_parallel/gradient_bucket.h"
#include "lockstep/strategies/strategy_state.h"

namespace lockstep::strategies {

class CommunicationHook {
 public:
  virtual ~CommunicationHook() = default;

  // Called when the bucket is full, in index order, on the thread that runs backward, without
  // recording. Starts what makes `bucket.buffer()` the average over the ranks of `group`, and
  // returns a work that is complete when it is one, or when Finish() may go on. The gradients are
  // this rank's sums, not divided by anything. What it throws ends the backward on all ranks.
  virtual comm::Work Reduce(GradientBucket& bucket, comm::Communicator& group) = 0;

  // Called once a backward, on the same thread, when the works of all buckets have been waited for:
  // for what cannot start before. Returns when every buffer is an average.
  virtual void Finish(const std::vector<GradientBucket*>& buckets, comm::Communicator& group) {
    (void)buckets, (void)group;
  }

  // Whether a bucket may be reduced for the next backward while its work of an earlier one is under
  // way, as with `staleness`, and buckets of several modules at once: the hook keeps nothing
  // between calls, and has no Finish().
  virtual bool allows_passes_at_once() const { return false; }

  // Called after the buckets were laid out, at first and once more after the first backward: the
  // same gradients, in other places. The old buckets are gone then; a hook that has tensors of them
  // keeps their memory until here.
  virtual void OnNewBuckets(const std::vector<GradientBucket*>& buckets) { (void)buckets; }

  // What it keeps between backwards, for training states; a hook that keeps something overrides
  // both. SaveState() may share storage with the hook. LoadState() copies what a hook of the same
  // options gave, `own` perhaps missing, after OnNewBuckets(), and throws InvalidArgument for
  // anything else, before anything changes.
  virtual StrategyState SaveState() const { return {}; }
  virtual void LoadState(const StrategyState& state);

  // For the strategy that calls it: the hook is taken as long as what this returns is kept. Throws
  // AlreadyExists while it is, unless passes at once are allowed. Thread-safe.
  std::shared_ptr<void> Take();

 private:
  std::mutex mutex_;
  std::weak_ptr<void> taken_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_COMMUNICATION_HOOK_H_
