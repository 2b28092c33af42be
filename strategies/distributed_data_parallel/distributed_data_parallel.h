// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// DistributedDataParallel: every rank has the whole model and a part of the rows; gradients are
// averaged over the ranks, bucket by bucket, while backward still runs.
//
//   auto model = std::make_shared<models::Gpt2>(config);
//   strategies::DistributedDataParallel ddp(model, world);    // rank 0's values everywhere
//   optim::AdamW optimizer(model->NamedParameters());
//   for (...) {
//     optimizer.ZeroGrad();
//     autograd::Backward(model->Loss(ids, targets));          // this rank's rows
//     optimizer.Step();                                       // the same on every rank
//   }
//
// Reduction hangs on the parameters, not on how the module is called: any function of the module,
// and the module itself, may be used. The average is over ranks: it equals the gradient of the mean
// over all rows when every rank has equally many. All ranks run the same backwards.
//
// Source: Li et al. 2020, "PyTorch Distributed".
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_DISTRIBUTED_DATA_PARALLEL_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_DISTRIBUTED_DATA_PARALLEL_H_

#include <cstdint>
#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/distributed_data_parallel/reducer.h"

namespace lockstep::strategies {

struct DistributedDataParallelOptions {
  // Sizes of the buffers that are reduced at once, and of the first one.
  int64_t bucket_cap_bytes = int64_t{25} << 20;
  int64_t first_bucket_bytes = int64_t{1} << 20;
  // Allows parameters that a backward does not reach. One that no rank reaches keeps its gradient
  // untouched; one that some ranks reach gets their sum divided by the number of all ranks.
  // Otherwise that backward throws FailedPrecondition on every rank, naming them.
  bool find_unused_parameters = false;
};

// One backward at a time. Destroy it while the module is not in use; gradients are local
// afterwards.
class DistributedDataParallel {
 public:
  // Checks that all ranks have the same parameters and buffers and gives them rank 0's values.
  // Every rank of `group` calls it. Throws InvalidArgument (null, no parameter requires a gradient,
  // parameters on several devices or of a dtype without averages, ranks that differ, sizes below
  // 1) and what the group throws.
  DistributedDataParallel(std::shared_ptr<nn::Module> module,
                          std::shared_ptr<comm::Communicator> group,
                          const DistributedDataParallelOptions& options = {});
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Scope for accumulation: backwards inside add to this rank's gradients and communicate nothing;
  // the next one outside reduces the sum, of every parameter that any of them reached. All ranks
  // enter it for the same backwards.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    std::shared_ptr<Reducer> reducer_;
  };

  // Gives all ranks rank 0's buffers again.
  void BroadcastBuffers();

  const std::shared_ptr<nn::Module>& module() const { return module_; }
  const std::shared_ptr<comm::Communicator>& group() const { return group_; }
  int64_t bucket_count() const { return reducer_->bucket_count(); }
  // Of the last synchronised backward.
  ReductionStatistics statistics() const { return reducer_->statistics(); }

 private:
  std::shared_ptr<nn::Module> module_;
  std::shared_ptr<comm::Communicator> group_;
  std::shared_ptr<Reducer> reducer_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_DISTRIBUTED_DATA_PARALLEL_H_
