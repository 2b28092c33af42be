// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Pipeline: a model in stages, on several devices or ranks, trained by micro-batches.
//
//   // One process: a thread and a device (cpu:0, cpu:1, ...) for each rank of the schedule.
//   Pipeline pipeline(SplitSequential(model, {3, 6}),
//                     {.schedule = OneForwardOneBackward(3, 8),
//                      .loss = [](TensorSpan out, TensorSpan target) {
//                        return CrossEntropy(out[0], target[0]);
//                      }});
//   optim::Sgd optimizer(pipeline.module().NamedParameters(), {.lr = 0.1});
//   for (...) {
//     optimizer.ZeroGrad();
//     const StepResult result = pipeline.Step({x}, {y});     // forward and backward
//     pipeline.ClipGradNorm(1.0);
//     optimizer.Step();
//   }
//
//   // A process (or thread) a rank: each has its own stages, and calls the same.
//   Pipeline pipeline({{rank, stage}}, world, {.schedule = ...});
//
// Step() cuts dimension 0 of every input and target into the schedule's micro-batches (RowsOf-
// MicroBatches in micro_batches.h), and runs them as the schedule says. Loss and gradients are
// those of the mean over the whole batch, however it is cut: a micro-batch counts by its share of
// the rows, or by PipelineOptions::weight. Gradients are added to Grad(); several Steps accumulate,
// and nothing rescales what earlier ones have added.
//
// The sum is that of accumulation on one device, bit for bit, with as many threads an op and where
// the schedule runs the backwards of a stage in the order of micro-batches (those of schedule.h
// do):
//
//   for (int m = 0; m < micro_batches; ++m) autograd::Backward(loss(m) * share[m]);
//
// Dropout draws what stage_streams.h says, whatever the schedule. Ranks of one pipeline seed alike:
// ManualSeed(seed, data-parallel coordinate).
//
// A stage runs under the caller's thread state (autocast, recording, observers) with its own
// device. Each of its forward passes has its own cache of autocast.
//
// Errors. What a stage, the loss or a hook throws is thrown by Step() as an Error of the same code,
// with "pipeline: rank 1, stage 1, micro-batch 2, action 1F2: " before its message. In one process
// all ranks stop, and the next Step() is as any other. Over a communicator the rank that failed
// aborts the group, and the others throw what that says, with the action that they were at; the
// group is of no use then. So are the groups in which pipelines of a mesh meet (abort_groups), and
// with them all ranks of the mesh end. Gradients may hold a part of the failed step: drop them.
//
// A stage that does not come back is named at PipelineOptions::timeout, with its action. A thread
// cannot be ended from outside: it keeps its stage and the run's tensors alive, also beyond the
// pipeline, may write gradients of its stage yet, and does nothing after that action. Until it has
// come back, Step() and Evaluate() throw FailedPrecondition naming it; then they go on.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_PIPELINE_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/strategies/pipeline/execution_plan.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/simulate.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/timeline.h"
#include "lockstep/strategies/pipeline/wiring.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline {

// A parameter by the stage that has it and its name in the unsplit model.
struct StageParameter {
  int stage = 0;
  std::string name;
};

// The same on all ranks.
struct PipelineOptions {
  // Transfers are added where it has none. Its micro-batches, placement and edges are the
  // pipeline's; evaluation has a forward-only schedule of the same.
  Schedule schedule;
  // Called on the last stage's device. Needed by Step.
  LossFunction loss = nullptr;
  // Empty: a chain.
  Wiring wiring = {};
  // Groups of parameters that are one in the model and have a copy in each of several stages,
  // ascending. At construction all become the first one's; after a step each has the sum of the
  // copies' gradients, added in the order of stages.
  std::vector<std::vector<StageParameter>> tied = {};
  // How many things a micro-batch's loss is a mean over (tokens that are not padding), from its
  // targets. Null: rows. Finite and not negative; one of 0 gives no loss, and a gradient of 0 times
  // its own.
  std::function<double(TensorSpan targets)> weight = nullptr;
  // The ranks that run this one's stages in other replicas, where those average their gradients
  // (after_last_backward, or sharded stages): in a step, a micro-batch counts by its share of the
  // rows or the weight of all replicas (distributed_data_parallel/loss_factors.h), so that the
  // average is the mean over all of them. Null: of this pipeline's alone, which is the same where
  // all replicas have as many. Over a communicator only; the last stage's ranks use it.
  std::shared_ptr<comm::Communicator> replica_group = nullptr;
  // What is run backward in place of a micro-batch's weighted loss, for loss scaling:
  //   [&](const Tensor& loss) { return scaler.Scale(loss); }
  // The optimizers' found-inf covers all stages where one optimizer has the parameters of all;
  // over a communicator give GradScalerOptions::group.
  std::function<Tensor(const Tensor& loss)> scale_loss = nullptr;
  // Called when a stage's gradients of this step are complete, on the thread of its rank, while
  // other stages still run: here a rank averages over its replicas. Where stages have tied
  // parameters: after their sum, at the end of the step.
  std::function<void(int stage)> after_last_backward = nullptr;
  // For what averages over replicas by itself in each backward. Makes a scope in which it does not,
  // held by each backward of a stage but the last of a step, on the thread of its rank:
  //   [&](int stage) { return std::make_shared<DistributedDataParallel::NoSync>(*ddp[stage]); }
  // With tied parameters every step averages: no NoSync around Step() itself.
  std::function<std::shared_ptr<void>(int stage)> no_sync = nullptr;
  // The ranks that each keep a part of the parameters of this rank's stages, where those are
  // sharded (sharded_stage.h): ClipGradNorm counts all parts.
  // Null: this rank has them whole. Over a communicator only.
  std::shared_ptr<comm::Communicator> shard_group = nullptr;
  // Other groups in which ranks of a mesh wait for this one in a step: what after_last_backward
  // averages over, what sharded stages are made of. A run that fails here aborts them, with
  // replica_group and shard_group, so that the ranks of other pipelines learn of it, and of the
  // reason, when they next meet this one there and not when it leaves. Over a communicator only.
  std::vector<std::shared_ptr<comm::Communicator>> abort_groups = {};
  // Of each rank, all different. Empty: cpu:0, cpu:1, ... in one process; over a communicator, the
  // current device, which is the only choice there.
  std::vector<Device> devices = {};
  // What each stage of the model and micro-batch keeps (simulate.h), measured or reckoned. With it
  // a schedule for which a device with a capacity limit (SetCapacityLimit) is too small is refused
  // at construction, on all ranks, and not in the middle of a step. Empty: unknown.
  std::vector<StageCosts> stage_costs = {};
  // Intra-op threads of each rank in one process; 0: the caller's, divided. Over a communicator 0:
  // the rank's own.
  int threads_per_rank = 0;
  // StepResult::outputs of Step, too.
  bool keep_outputs = false;
  // Over a communicator the longest wait for what another rank sends; absent: the group's. In one
  // process the longest time in which no rank begins an action; absent: as long as a process group
  // waits by default. Longer than the longest action of a stage.
  std::optional<absl::Duration> timeout = std::nullopt;
};

struct StepResult {
  // The mean over the batch, on every rank. 0 in an evaluation without targets, and where nothing
  // counts. Of a step with a replica_group: what the average over replicas makes the mean over all.
  double loss = 0;
  std::vector<double> losses;  // of each micro-batch, unweighted; on every rank
  // Of the last stage, rows joined, without history; on the last stage's rank.
  std::vector<Tensor> outputs;
};

// Not thread-safe. Hooks that it is given must not call it.
class Pipeline {
 public:
  // All ranks in this process. The stages' modules are moved to their devices; one device is one
  // rank. Throws InvalidArgument, with the numbers, for options out of range, a schedule that is
  // not valid (Validate) or of another number of stages, a stage without `forward`, paths that meet
  // (stage.h), a parameter in two stages, tied parameters that do not exist or are not alike, and
  // devices that are too small for `stage_costs` (CheckMemory).
  Pipeline(std::vector<Stage> stages, PipelineOptions options);

  // This rank of `group`, which has a rank for each of the schedule's; `stages` are those of this
  // rank by number. Collective: makes a group for headers. While a Step is on, nothing else sends
  // in `group`. The modules are on this rank's current device. Throws also InvalidArgument when
  // `stages` are not this rank's or the group has another size, and what the group throws.
  Pipeline(std::map<int, Stage> stages, std::shared_ptr<comm::Communicator> group,
           PipelineOptions options);

  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // One forward and backward over a batch. All ranks call it. `inputs` are read where a stage takes
  // inputs of the batch and `targets` where the last stage is; they may be empty on other ranks.
  // Any dtypes and devices; dimension 0 is the batch; inputs want no gradients.
  //
  // Throws InvalidArgument for fewer rows than micro-batches, with the numbers, before anything
  // runs (over a communicator the group is aborted, because other ranks may not see the rows);
  // FailedPrecondition where gradients are not recorded (NoGradScope), in one process under
  // saved-tensor hooks (put checkpointing and offload inside of stages), and for a pipeline without
  // loss; errors of stages as said above.
  StepResult Step(TensorSpan inputs, TensorSpan targets);

  // Forward only, without recording. The loss too, where `targets` are given. Modes are the
  // modules': module().Eval() turns dropout off. Throws as Step.
  StepResult Evaluate(TensorSpan inputs, TensorSpan targets = {});

  // The stages of this process under the names of the unsplit model: for optimizers, StateDict(),
  // Train(), ZeroGrad().
  nn::Module& module();
  // Loads this process's part of an unsplit model's state. Throws as Module::LoadStateDict; names
  // that no stage has are refused in one process, and left to the other ranks over a communicator.
  void LoadStateDict(const NamedTensors& state);

  // optim::ClipGradNorm over the parameters of all stages, tied ones counted once. The norm,
  // float32 [] on cpu:0, is the same on all ranks, and for every placement of the stages. On all
  // ranks.
  Tensor ClipGradNorm(double max_norm, const optim::ClipGradNormOptions& options = {});

  // When each action of the last run happened, on this process's ranks; seconds since it began.
  const std::vector<Span>& spans() const;
  // When that was, on this process's MonotonicNanoseconds().
  int64_t began_ns() const;
  // The same with bubble and busy times; over a communicator, of this rank alone: gather_timeline.h
  // has that of all ranks.
  Timeline MeasuredTimeline() const;

  // With its transfers.
  const Schedule& schedule() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_PIPELINE_H_
