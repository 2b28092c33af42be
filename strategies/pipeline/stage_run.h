// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// StageRun: one stage during one run: what it keeps of each micro-batch between its forward and its
// backward. Internal; used by the thread of its rank.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_STAGE_RUN_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_STAGE_RUN_H_

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/autograd/split_backward.h"
#include "lockstep/strategies/pipeline/execution_plan.h"
#include "lockstep/strategies/pipeline/transport.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline {

// What the last stage does with its outputs. All vectors have an entry a micro-batch.
struct LossPlan {
  LossFunction loss = nullptr;  // null: outputs only
  std::vector<std::vector<Tensor>> targets;
  // Of its loss in the mean over the batch; they add up to 1.
  std::vector<double> shares;
  std::function<Tensor(const Tensor& loss)> scale_loss = nullptr;
  bool keeps_outputs = false;
};

class StageRun {
 public:
  // `loss` is null but for the last stage; both outlive this object. `records`: a backward follows.
  StageRun(const ExecutionPlan& plan, const PlannedStage& stage, const LossPlan* loss,
           bool records);

  // The outputs for the letters of `incoming` edges, in their order, and the inputs of the batch.
  // The letters to the outgoing edges, in their order. Throws InvalidArgument when there is no such
  // input or output, and what the stage's and the loss function throw.
  std::vector<Letter> Forward(int micro_batch, std::vector<Letter> incoming, TensorSpan batch);

  // `gradients`: the letters of the outgoing edges, in their order. What goes back on the incoming
  // edges, in their order. Inputs only: BackwardWeight follows.
  std::vector<Letter> Backward(int micro_batch, std::vector<Letter> gradients, bool inputs_only);
  void BackwardWeight(int micro_batch);

  // Of the last stage: outputs without history, and the loss as computed, undefined before.
  std::vector<Tensor> TakeOutputs(int micro_batch);
  const Tensor& loss(int micro_batch) const { return At(micro_batch).loss_value; }

 private:
  struct MicroBatch {
    std::vector<std::vector<Tensor>> leaves;  // by incoming edge; undefined where no gradient is
    std::vector<Tensor> outputs;              // until the backward; only those that want a gradient
    std::vector<Tensor> final_outputs;
    Tensor loss;  // to be run backward
    Tensor loss_value;
    std::optional<autograd::SplitBackward> split;
    // A stage without gradients of inputs keeps its backward for later.
    std::vector<Tensor> roots, root_gradients;
  };

  MicroBatch& At(int micro_batch) { return micro_batches_[static_cast<size_t>(micro_batch)]; }
  const MicroBatch& At(int micro_batch) const {
    return micro_batches_[static_cast<size_t>(micro_batch)];
  }
  std::vector<Tensor> MakeInputs(MicroBatch& state, std::vector<Letter>& incoming,
                                 TensorSpan batch) const;
  void ComputeLoss(int micro_batch, MicroBatch& state, TensorSpan outputs) const;
  Letter LetterOf(int edge, TensorSpan outputs) const;
  // The sum of the gradients that came for each output, or undefined.
  std::vector<Tensor> SumGradients(const MicroBatch& state, std::vector<Letter>& gradients) const;
  void SetRoots(MicroBatch& state, std::vector<Letter>& gradients) const;

  const ExecutionPlan& plan_;
  const PlannedStage& stage_;
  const LossPlan* const loss_;
  const bool records_;
  std::vector<MicroBatch> micro_batches_;
};

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_STAGE_RUN_H_
