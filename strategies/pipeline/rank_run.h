// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// RankRun: one rank's list of actions, run once. Internal.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_RANK_RUN_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_RANK_RUN_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/strategies/pipeline/execution_plan.h"
#include "lockstep/strategies/pipeline/stage_run.h"
#include "lockstep/strategies/pipeline/timeline.h"
#include "lockstep/strategies/pipeline/transport.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline {

// What a run is about; the same for all of its ranks in this process.
struct RunRequest {
  bool trains = true;
  std::vector<std::vector<Tensor>> batch;  // [micro-batch][input]
  LossPlan loss;
  RandomStreams start;    // of all stages and micro-batches
  int64_t origin_ns = 0;  // of the spans
  // After the last backward of each stage but those of `later`; may be null.
  std::function<void(int stage)> after_last_backward = nullptr;
  std::vector<bool> later;  // by stage
  // Held by the backwards of a stage but its last; may be null.
  std::function<std::shared_ptr<void>(int stage)> no_sync = nullptr;
};

class RankRun {
 public:
  // All outlive this object. `stages` that this rank runs have a forward.
  RankRun(const ExecutionPlan& plan, const RunRequest& request, int rank, Transport& transport);

  // Under the thread state of this thread, whose random streams are as before afterwards. Throws
  // the first error, with rank, stage, micro-batch and action before its message.
  void Run();

  // What this rank is at; from any thread. "1F0", or "its end"; "pipeline: rank 1, stage 1,
  // micro-batch 0, action 1F0"; whether it waits for another rank; and when it began it, on
  // MonotonicNanoseconds's clock.
  std::string CurrentAction() const;
  std::string Place() const;
  bool IsWaiting() const { return is_waiting_.load(std::memory_order_relaxed); }
  int64_t since_ns() const { return since_ns_.load(std::memory_order_relaxed); }

  const std::vector<Span>& spans() const { return spans_; }
  // Null for a stage of another rank.
  StageRun* stage(int stage) { return stages_[static_cast<size_t>(stage)].get(); }

 private:
  void Execute(const PlannedAction& planned);
  void RunForward(const Action& action);
  void RunBackward(const Action& action, bool inputs_only);
  void RunTransfer(const PlannedAction& planned);
  // The inputs of the batch that the stage takes, on this device; the others are undefined.
  std::vector<Tensor> BatchFor(const PlannedStage& stage, int micro_batch) const;
  // The letter on an edge, from another rank or from a stage of this one.
  Letter TakeLetter(int channel, int micro_batch, int other_stage);
  void StartSpan();
  void EndSpan(const Action& action);
  size_t SlotOf(int channel, int micro_batch) const {
    return static_cast<size_t>(channel) * static_cast<size_t>(plan_.micro_batches) +
           static_cast<size_t>(micro_batch);
  }
  const std::vector<PlannedAction>& actions() const {
    return (request_.trains ? plan_.training : plan_.evaluation)[static_cast<size_t>(rank_)];
  }
  int RankOf(int stage) const { return plan_.rank_of_stage[static_cast<size_t>(stage)]; }

  const ExecutionPlan& plan_;
  const RunRequest& request_;
  const int rank_;
  Transport& transport_;
  std::vector<std::unique_ptr<StageRun>> stages_;
  // Made here: to be sent, or for a stage of this rank.
  std::vector<Letter> made_;
  std::atomic<size_t> position_ = 0;  // in the list of actions
  std::atomic<bool> is_waiting_ = false;
  std::atomic<int64_t> since_ns_;
  int64_t span_start_ns_ = 0;
  std::vector<Span> spans_;
};

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_RANK_RUN_H_
