// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// DistributedDataParallel: every rank holds the whole model and works on its part of each batch;
// the gradients are averaged over the ranks while backward still runs.
//
//   models::Gpt2 model(config);
//   strategies::DistributedDataParallel ddp(model, world);   // checks and equalises the replicas
//   optim::AdamW optimizer(model.NamedParameters(), {.lr = 2e-3});
//   for (const Batch& batch : loader) {                      // this rank's part
//     optimizer.ZeroGrad();
//     autograd::Backward(Loss(model(batch.x), batch.y));     // Grad() is the average afterwards
//     optimizer.Step();
//   }
//
// Accumulation over micro-batches, with one reduction:
//
//   {
//     auto no_sync = ddp.NoSync();
//     autograd::Backward(Loss(model(first.x), first.y));     // adds into this rank's Grad() only
//   }
//   autograd::Backward(Loss(model(second.x), second.y));     // reduces the sum of both
//
// The model itself is called: the work is done by hooks on its parameters, so it makes no
// difference how the forward pass is run. Whether a backward reduces depends on whether it runs
// inside NoSync().
//
// Gradients are packed into buckets in reverse order of registration, which is roughly the order in
// which backward makes them. A bucket whose gradients are all there is given to the group's
// communication thread; buckets start in index order, so that all ranks issue the same collectives
// in the same order. Before Backward() returns it waits for what is still running and copies the
// averages into Grad(). An average is the sum in rank order times 1/W, in float32 or wider: bitwise
// the same on every rank, whatever the sizes of the buckets. A parameter that is used several times
// is reduced once, after its last contribution.
//
// Every parameter that requires a gradient must get one in each accumulation window (all backwards
// since the last one that reduced): else that backward throws FailedPrecondition, naming the
// parameters, and aborts the group, since the peers may be waiting for them. The same happens when
// backward itself fails.
//
// One object a rank; backwards of one model must not run at the same time. The model must outlive
// the object. Parameters must not be added, removed, frozen, unfrozen or moved to another device
// while it lives.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/bucket_plan.h"
#include "lockstep/strategies/gradient_reducer.h"

namespace lockstep::strategies {

struct DistributedDataParallelOptions {
  // A bucket is closed when it holds this many bytes. The first one is smaller, so that
  // communication starts early.
  int64_t bucket_cap_bytes = int64_t{25} << 20;
  int64_t first_bucket_bytes = int64_t{1} << 20;
  // The rank whose parameters and buffers all ranks start with.
  int source_rank = 0;
  // Keeps a log of what happened when (see events()); for tests and timelines.
  bool record_events = false;
};

class DistributedDataParallel {
 public:
  // Collective: compares names, shapes and dtypes of all parameters and buffers over the ranks, and
  // broadcasts them. Throws InvalidArgument on every rank: no parameter requires a gradient,
  // options out of range, replicas that differ (naming the first difference and the ranks); and
  // what the communicator throws.
  DistributedDataParallel(nn::Module& module, std::shared_ptr<comm::Communicator> group,
                          const DistributedDataParallelOptions& options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  nn::Module& module() const { return module_; }
  const std::shared_ptr<comm::Communicator>& group() const { return group_; }

  // While the result lives, backwards add to this rank's gradients and communicate nothing. The
  // next backward outside reduces what has been added up. May be nested.
  [[nodiscard]] NoSyncScope NoSync() { return NoSyncScope(reducer_); }

  // How the parameters are packed; indices are positions in module().NamedParameters(), frozen ones
  // left out.
  const BucketPlan& plan() const { return reducer_->plan(); }

  // What reductions have cost so far. Always measured: two clock readings a backward.
  ReducerStatistics statistics() const { return reducer_->statistics(); }
  void ResetStatistics() { reducer_->ResetStatistics(); }

  // The log, when options.record_events is set.
  std::vector<ReducerEvent> events() const { return reducer_->events(); }

 private:
  nn::Module& module_;
  std::shared_ptr<comm::Communicator> group_;
  std::shared_ptr<GradientReducer> reducer_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_H_
