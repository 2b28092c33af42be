// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Join: training when ranks have different numbers of batches.
//
//   {
//     strategies::Join join({&ddp});
//     while (std::optional<NamedTensors> batch = loader.Next()) {
//       optimizer.ZeroGrad();
//       autograd::Backward(Loss(*model, *batch));
//       optimizer.Step();
//     }
//     join.Finish();
//   }
//
// A rank whose batches have ended stays in Finish() and takes part in every collective of the
// others' steps (buckets, communication hooks, buffers, reports) with gradients of zero, and with
// what it has accumulated under NoSync and not sent. When all ranks are there, each gets the
// parameters and buffers of one that had batches longest. Each synchronised backward, and each
// broadcast of buffers, costs one small collective more, for telling who is still there.
//
// Optimizers are not part of it: the moments of a rank that ended early are those of its last step.
// Save them on the rank that Finish() returns. With optimizer_in_backward a rank steps in the
// others' steps too, and its moments stay theirs.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_JOIN_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_JOIN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"

namespace lockstep::strategies {

struct JoinOptions {
  // Averages are over all ranks, those without inputs counting as zeros, so that each sample has
  // the weight that it would have had. Otherwise over the ranks that have inputs.
  bool divide_by_initial_world_size = true;
  // As soon as a rank has no inputs, every rank throws FailedPrecondition: the others from their
  // next synchronised backward, this one from Finish(). The group goes on.
  bool throw_on_early_termination = false;
};

// Used by the thread that trains. While it exists every synchronised backward of its modules is
// announced, on all ranks.
class Join {
 public:
  // The modules that are trained in the loop, in the same order on every rank, over one group. They
  // outlive this object. Throws InvalidArgument: none, null, given twice, of different groups, with
  // staleness; AlreadyExists: in another Join.
  explicit Join(std::vector<DistributedDataParallel*> modules, const JoinOptions& options = {});
  // Without Finish() (an exception has left the loop) the group is aborted: the others are not left
  // waiting.
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // This rank's inputs have ended. Returns when all ranks' have, with the rank whose model all have
  // now. Once. Throws FailedPrecondition as options say, and what collectives throw.
  int Finish();

 private:
  // What every rank is about to do: 0 nothing any more, else 1 + 2 * module (+ 1 for buffers).
  struct Round {
    std::vector<int64_t> actions;  // of each rank
    int64_t active() const;
    int first_active() const;
  };
  Round Announce(int64_t action);
  void Shadow(const Round& round);
  int ShareLastModel();

  const std::vector<DistributedDataParallel*> modules_;
  const JoinOptions options_;
  const std::shared_ptr<comm::Communicator> group_;
  bool was_active_ = false;  // in the last round
  bool over_ = false;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_JOIN_H_
