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

  ThreadedRanks(std::shared_ptr<const ExecutionPlan> plan, std::vector<Device> devices,
                int threads_per_rank, absl::Duration timeout);

  // All ranks at once, under the caller's thread state. Throws what the first one threw; the others
  // have stopped then, but for those that do not come back from their stage in time: until they do,
  // the next run throws FailedPrecondition, naming them.
  Outcome Run(RunRequest request);

 private:
  struct State;

  // For as long as the timeout. False: some are not.
  static bool AwaitEnd(State& state, absl::Duration timeout);
  [[noreturn]] static void Rethrow(State& state);

  const std::shared_ptr<const ExecutionPlan> plan_;
  const std::vector<Device> devices_;
  const int threads_per_rank_;
  const absl::Duration timeout_;
  std::shared_ptr<State> left_behind_;
};

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_THREADED_RANKS_H_
