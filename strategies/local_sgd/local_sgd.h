// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// LocalSgd: ranks take several steps by themselves and then average their parameters.
//
//   DistributedDataParallel ddp(model, world);
//   strategies::LocalSgd local(ddp, {.period = 8, .warmup_steps = 500});
//   for (...) {
//     optimizer.ZeroGrad();
//     {
//       const auto scope = local.BackwardScope();
//       autograd::Backward(Loss(*model, batch));
//     }
//     optimizer.Step();
//     local.AfterStep();
//   }
//
// The first `warmup_steps` average gradients as always; then ranks average their parameters after
// every `period`-th step and communicate nothing between: 1 / period of the bytes. The optimizers'
// moments stay each rank's own. Where losses are to be compared, or a state is to be saved, between
// two averages, call Average().
//
// Sources: Lin et al. 2020, "Don't Use Large Mini-Batches, Use Local SGD" (also of hierarchical
// averages); Stich 2019.
#ifndef LOCKSTEP_STRATEGIES_LOCAL_SGD_LOCAL_SGD_H_
#define LOCKSTEP_STRATEGIES_LOCAL_SGD_LOCAL_SGD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/strategy_state.h"

namespace lockstep::strategies {

// Averages over some of the ranks, between those over all.
struct InnerAverage {
  int64_t period = 0;
  std::shared_ptr<comm::Communicator> group;  // that this rank is in: its host's, say
};

struct LocalSgdOptions {
  int64_t period = 8;
  int64_t warmup_steps = 0;
  // Hierarchical averages: periods grow, and each divides the next one and `period`. Where several
  // are due the widest counts, as in {.period = 16, .inner = {{2, pair}, {8, host}}}.
  std::vector<InnerAverage> inner = {};
};

// Used by the thread that trains, on every rank alike.
class LocalSgd {
 public:
  // `ddp` outlives this object. Throws InvalidArgument for a period below 1, negative warmup_steps,
  // inner averages without a group or whose periods do not divide the next one, and a `ddp` with
  // staleness or optimizer_in_backward, which step by averaged gradients.
  LocalSgd(DistributedDataParallel& ddp, const LocalSgdOptions& options);

  // For the backwards of the present step: nothing during the warm-up, a NoSync afterwards. Within
  // an accumulation, open a NoSync for all but the last backward as always.
  std::unique_ptr<DistributedDataParallel::NoSync> BackwardScope();

  // The optimizer has stepped. Averages when it is time; returns whether it did.
  bool AfterStep();

  // Averages the parameters over all ranks now: one AllReduce a parameter, all in flight at once.
  void Average();

  int64_t steps() const { return steps_; }

  // For training states: where in a period it is, the same on every rank. The parameters and the
  // optimizers' moments, which differ between ranks, are the program's to save: Average() before,
  // and what optimizers save as each rank's own. LoadState() throws InvalidArgument for the state
  // of something else.
  StrategyState SaveState() const;
  void LoadState(const StrategyState& state);

 private:
  void AverageOver(comm::Communicator& group);

  DistributedDataParallel& ddp_;
  LocalSgdOptions options_;
  int64_t steps_ = 0;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_LOCAL_SGD_LOCAL_SGD_H_
