// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a pipeline as threads of one process, a device each. Internal.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_THREADED_RANKS_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_THREADED_RANKS_H_

#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/strategies/pipeline/execution_plan.h"
#include "lockstep/strategies/pipeline/rank_run.h"
#include "lockstep/tensor/device.h"

namespace lockstep::pipeline {

class ThreadedRanks {
 public:
  // A run that is over: what each rank did and has.
  struct Outcome {
    std::vector<Span> spans;
    std::vector<Tensor> losses;                // of the last stage, by micro-batch
    std::vector<std::vector<Tensor>> outputs;  // [micro-batch][output]
  };

  // A run fails when no rank has begun an action for as long as `timeout`.
  ThreadedRanks(std::shared_ptr<const ExecutionPlan> plan, std::vector<Device> devices,
                int threads_per_rank, absl::Duration timeout);

  // All ranks at once, under the caller's thread state. Throws what the first one threw, or
  // DeadlineExceeded naming the action that did not come back; the others have stopped then. A
  // thread cannot be ended from outside: one that does not come back keeps all that it uses alive,
  // ends when it does, and until then each further run throws FailedPrecondition, naming it.
  Outcome Run(RunRequest request);
  // Whether a thread of an earlier run is still in its stage.
  bool HasLeftBehind();

 private:
  struct State;

  const std::shared_ptr<const ExecutionPlan> plan_;
  const std::vector<Device> devices_;
  const int threads_per_rank_;
  const absl::Duration timeout_;
  std::shared_ptr<State> left_behind_;
};

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_THREADED_RANKS_H_
