// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/stage_run.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::pipeline {
namespace {

const Tensor& ElementAt(TensorSpan tensors, int index, const std::string& what) {
  if (index < static_cast<int>(tensors.size()) && tensors[static_cast<size_t>(index)].defined()) {
    return tensors[static_cast<size_t>(index)];
  }
  throw InvalidArgumentError(absl::StrCat(what, " ", index, " is not there: there are ",
                                          tensors.size(), "; see PipelineOptions::wiring"));
}

}  // namespace

StageRun::StageRun(const ExecutionPlan& plan, const PlannedStage& stage, const LossPlan* loss,
                   bool records)
    : plan_(plan),
      stage_(stage),
      loss_(loss),
      records_(records),
      micro_batches_(static_cast<size_t>(plan.micro_batches)) {}

std::vector<Tensor> StageRun::MakeInputs(MicroBatch& state, std::vector<Letter>& incoming,
                                         TensorSpan batch) const {
  for (Letter& letter : incoming) {
    std::vector<Tensor>& leaves = state.leaves.emplace_back(letter.tensors.size());
    for (size_t i = 0; i < letter.tensors.size(); ++i) {
      if (!records_ || !letter.wants_gradient[i]) continue;
      leaves[i] = autograd::SetRequiresGrad(Detach(letter.tensors[i]), true);
      letter.tensors[i] = leaves[i];
    }
  }
  std::vector<Tensor> inputs;
  if (plan_.is_chain()) {
    if (!incoming.empty()) return incoming[0].tensors;
    for (const Tensor& tensor : batch) inputs.push_back(tensor);
  }
  for (const PlannedStage::Input& input : stage_.inputs) {
    inputs.push_back(input.incoming < 0 ? ElementAt(batch, input.position, "input")
                                        : incoming[static_cast<size_t>(input.incoming)]
                                              .tensors[static_cast<size_t>(input.position)]);
  }
  return inputs;
}

Letter StageRun::LetterOf(int edge, TensorSpan outputs) const {
  const autograd::NoGradScope no_grad;
  Letter letter;
  const auto add = [&](const Tensor& output) {
    letter.wants_gradient.push_back(records_ && output.defined() && autograd::RequiresGrad(output));
    letter.tensors.push_back(output.defined() ? Detach(output) : output);
  };
  if (plan_.is_chain()) {
    for (const Tensor& output : outputs) add(output);
  } else {
    for (const int index : plan_.edge_outputs[static_cast<size_t>(edge)]) {
      add(ElementAt(outputs, index, "output"));
    }
  }
  return letter;
}

std::vector<Letter> StageRun::Forward(int micro_batch, std::vector<Letter> incoming,
                                      TensorSpan batch) {
  MicroBatch& state = At(micro_batch);
  const TensorList outputs = stage_.forward(MakeInputs(state, incoming, batch));
  if (outputs.empty()) {
    throw InvalidArgumentError(
        "the stage returned no tensors; give what the next stage or the loss takes");
  }
  std::vector<Letter> letters;
  for (const int edge : stage_.outgoing) letters.push_back(LetterOf(edge, outputs));
  if (stage_.is_last && loss_ != nullptr) {
    if (loss_->loss != nullptr) ComputeLoss(micro_batch, state, outputs);
    for (const Tensor& output : outputs) {
      if (loss_->keeps_outputs) state.final_outputs.push_back(Detach(output));
    }
  }
  if (!records_) {
    state.leaves.clear();
  } else if (!stage_.is_last) {
    for (const Tensor& output : outputs) {
      const bool wants = output.defined() && autograd::RequiresGrad(output);
      state.outputs.push_back(wants ? output : Tensor());
    }
  }
  return letters;
}

void StageRun::ComputeLoss(int micro_batch, MicroBatch& state, TensorSpan outputs) const {
  const auto m = static_cast<size_t>(micro_batch);
  std::vector<Tensor> targets = loss_->targets[m];
  for (Tensor& target : targets) {
    if (target.defined()) target = To(target, CurrentDevice());
  }
  // Undefined, which the op that a loss gives it to refuses by name.
  if (targets.empty()) targets.emplace_back();
  Tensor loss = loss_->loss(outputs, targets);
  if (!loss.defined() || loss.numel() != 1 || !IsFloatingPoint(loss.dtype())) {
    throw InvalidArgumentError(absl::StrCat("PipelineOptions::loss returned ", loss.DebugString(),
                                            "; a loss is one floating-point element, a mean over "
                                            "the micro-batch"));
  }
  state.loss_value = Detach(loss);
  if (!records_) return;
  const double share = loss_->shares[m];
  if (share != 1) {
    loss = Mul(IsReducedFloat(loss.dtype()) ? To(loss, DType::kFloat32) : loss, share);
  }
  state.loss = loss_->scale_loss == nullptr ? loss : loss_->scale_loss(loss);
}

std::vector<Tensor> StageRun::SumGradients(const MicroBatch& state,
                                           std::vector<Letter>& gradients) const {
  const autograd::NoGradScope no_grad;
  std::vector<Tensor> sums(state.outputs.size());
  // As in one graph, where the gradient of what ran last is there first.
  for (size_t i = gradients.size(); i-- > 0;) {
    const auto edge = static_cast<size_t>(stage_.outgoing[i]);
    for (size_t t = 0; t < gradients[i].tensors.size(); ++t) {
      Tensor& gradient = gradients[i].tensors[t];
      if (!gradient.defined()) continue;
      const size_t output = plan_.is_chain() ? t : static_cast<size_t>(plan_.edge_outputs[edge][t]);
      sums[output] = sums[output].defined() ? Add(sums[output], gradient) : gradient;
    }
  }
  return sums;
}

void StageRun::SetRoots(MicroBatch& state, std::vector<Letter>& gradients) const {
  if (stage_.is_last) {
    state.roots = {std::exchange(state.loss, {})};
    state.root_gradients = {Tensor()};
    return;
  }
  const std::vector<Tensor> sums = SumGradients(state, gradients);
  for (size_t i = 0; i < state.outputs.size(); ++i) {
    if (!state.outputs[i].defined() || !sums[i].defined()) continue;
    state.roots.push_back(std::move(state.outputs[i]));
    state.root_gradients.push_back(sums[i]);
  }
  state.outputs.clear();
}

std::vector<Letter> StageRun::Backward(int micro_batch, std::vector<Letter> gradients,
                                       bool inputs_only) {
  MicroBatch& state = At(micro_batch);
  SetRoots(state, gradients);
  gradients.clear();
  std::vector<Tensor> inputs;
  for (const std::vector<Tensor>& leaves : state.leaves) {
    for (const Tensor& leaf : leaves) {
      if (leaf.defined()) inputs.push_back(leaf);
    }
  }
  std::vector<Tensor> input_gradients(inputs.size());
  if (inputs_only) {
    if (!state.roots.empty() && !inputs.empty()) {
      state.split.emplace(std::exchange(state.roots, {}), inputs,
                          autograd::SplitBackwardOptions{std::exchange(state.root_gradients, {})});
      input_gradients = state.split->RunInputs();
    }
  } else if (!state.roots.empty()) {
    autograd::Backward(std::exchange(state.roots, {}),
                       {.gradients = std::exchange(state.root_gradients, {})});
    for (size_t i = 0; i < inputs.size(); ++i) input_gradients[i] = autograd::Grad(inputs[i]);
  }
  std::vector<Letter> letters;
  size_t next = 0;
  for (const std::vector<Tensor>& leaves : state.leaves) {
    Letter& letter = letters.emplace_back();
    for (const Tensor& leaf : leaves) {
      letter.tensors.push_back(leaf.defined() ? std::move(input_gradients[next++]) : Tensor());
      letter.wants_gradient.push_back(false);
    }
  }
  state.leaves.clear();
  return letters;
}

void StageRun::BackwardWeight(int micro_batch) {
  MicroBatch& state = At(micro_batch);
  if (state.split.has_value()) {
    state.split->RunWeights();
    state.split.reset();
  } else if (!state.roots.empty()) {
    autograd::Backward(std::exchange(state.roots, {}),
                       {.gradients = std::exchange(state.root_gradients, {})});
  }
}

std::vector<Tensor> StageRun::TakeOutputs(int micro_batch) {
  return std::exchange(At(micro_batch).final_outputs, {});
}

}  // namespace lockstep::pipeline
