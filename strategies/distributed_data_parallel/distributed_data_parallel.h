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
// over all rows when every rank has equally many (loss_factors.h otherwise). All ranks run the same
// synchronised backwards, of which each averages what Grad() has then: two without ZeroGrad()
// between them add up.
//
// Source: Li et al. 2020, "PyTorch Distributed".
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_DISTRIBUTED_DATA_PARALLEL_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_DISTRIBUTED_DATA_PARALLEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/hooks.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/strategies/distributed_data_parallel/buffer_sync.h"
#include "lockstep/strategies/distributed_data_parallel/communication_hook.h"
#include "lockstep/strategies/distributed_data_parallel/reducer.h"
#include "lockstep/strategies/distributed_data_parallel/reduction_statistics.h"
#include "lockstep/strategies/strategy_state.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::strategies {

struct DistributedDataParallelOptions {
  // Sizes of the buffers that are reduced at once, and of the first one. Each is of one dtype on
  // one device.
  int64_t bucket_cap_bytes = int64_t{25} << 20;
  int64_t first_bucket_bytes = int64_t{1} << 20;
  // Allows parameters that a backward does not reach. One that no rank reaches keeps its gradient
  // untouched; one that some ranks reach gets their sum divided by the number of all ranks.
  // Otherwise that backward throws FailedPrecondition on every rank, naming them.
  bool find_unused_parameters = false;
  // Every backward is as the first synchronised one: what it does not reach may stay unused,
  // without a search, and a Backward() inside of it may add to the same parameters. The first one
  // reduces at its end only. A later one that differs is an error that names the parameters.
  bool static_graph = false;
  // Grad() is a view of the bucket: the model's gradients exist once and are not copied back. A
  // tensor that Grad() gave shows later steps' gradients, and none once the first backward has laid
  // the buckets out anew. Views have no history: not for gradients of gradients (create_graph).
  bool gradient_as_bucket_view = false;
  // Rank 0's buffers go to every rank before the first forward pass, by operator() of the module,
  // that follows a synchronised backward; not in evaluation (Eval(), NoGradScope), nor under
  // NoSync.
  bool broadcast_buffers = true;
  // Compare the ranks' parameters, buffers and options and give all of them rank 0's values.
  // Without it nothing is communicated at construction, and they must be equal.
  bool init_sync = true;
  // Names of parameters and buffers, as the module gives them, that are left alone in all of this.
  std::vector<std::string> ignored_parameters = {};
  // A check: the device that the parameters lie on. None for a module that spans several.
  std::vector<Device> device_ids = {};
  // How a bucket becomes an average; null: AllReduce.
  std::shared_ptr<CommunicationHook> communication_hook = nullptr;
  // A gradient with an infinity or a NaN, before it is averaged, is FailedPrecondition on every
  // rank that names the parameter and the ranks. Reads every gradient once more; not for scaled
  // losses, whose infinities a GradScaler wants to see.
  bool check_finite = false;
  // Steps a bucket's parameters when its average is there, while backward still runs, and drops
  // their gradients: none are left after backward. No clipping, no GradScaler, no Step(). All
  // parameters on one device. Must outlive this object.
  optim::Optimizer* optimizer_in_backward = nullptr;
  // Asynchronous updates: backward leaves the averages of this many steps ago and waits for nothing
  // else, so that they travel while later steps compute. The first ones leave no gradients. Not
  // with a GradScaler, whose scale changes between steps. A communication hook has to allow it.
  int64_t staleness = 0;
};

// One backward at a time. Destroy it while the module is not in use; gradients are local
// afterwards.
class DistributedDataParallel {
 public:
  // Checks that all ranks have the same parameters and buffers and gives them rank 0's values.
  // Every rank of `group` calls it. Throws InvalidArgument (null, no parameter requires a gradient,
  // device_ids that are not the parameters', unknown ignored ones, parameters of a dtype without
  // averages, ranks that differ, sizes below 1), AlreadyExists (a parameter's gradient is averaged
  // by another strategy, the parameter is sharded, the communication hook is another one's),
  // FailedPrecondition (it was sharded by one that is gone), Unimplemented (options that exclude
  // each other) and what the group throws.
  //
  // The first backward after parameters were added, removed, replaced, moved, converted, frozen or
  // thawed throws FailedPrecondition: destroy this object, make the change, and make a new one; the
  // optimizer may stay.
  DistributedDataParallel(std::shared_ptr<nn::Module> module,
                          std::shared_ptr<comm::Communicator> group,
                          const DistributedDataParallelOptions& options = {});
  ~DistributedDataParallel();
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

  // With staleness, at the end of training: waits for the averages that are under way, on every
  // rank, and drops them. The destructor does so too, but swallows errors.
  void FinishPending();

  // What it keeps between steps, for training states (strategy_state.h), beside the module:
  // averages under way with staleness, which are waited for, and what the communication hook keeps.
  // Between two steps. The tensors share storage: write them before the next one.
  StrategyState SaveState();
  // Copies what one with the same staleness and hook gave, on a module of the same parameters,
  // between backwards; averages that are under way are waited for and dropped. Buckets may be
  // others. Throws InvalidArgument naming what does not fit.
  void LoadState(const StrategyState& state);

  const std::shared_ptr<nn::Module>& module() const { return module_; }
  const std::shared_ptr<comm::Communicator>& group() const { return group_; }
  int64_t bucket_count() const { return reducer_->bucket_count(); }
  // The buckets as they are now, with indices into reduced_parameters().
  std::vector<BucketSpec> buckets() const { return reducer_->plan(); }
  const NamedTensors& reduced_parameters() const { return reduced_; }
  int64_t staleness() const { return reducer_->options().staleness; }
  // Whether an optimizer_in_backward was given.
  bool steps_in_backward() const { return reducer_->options().optimizer_in_backward != nullptr; }
  // Of the last synchronised backward.
  ReductionStatistics statistics() const { return reducer_->statistics(); }

 private:
  friend class Join;

  std::shared_ptr<nn::Module> module_;
  std::shared_ptr<comm::Communicator> group_;
  NamedTensors synced_;   // parameters and buffers that are the same on all ranks
  NamedTensors reduced_;  // parameters whose gradients are averaged
  std::shared_ptr<Reducer> reducer_;
  std::shared_ptr<BufferSync> buffers_;
  nn::HookHandle forward_hook_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_DISTRIBUTED_DATA_PARALLEL_H_
