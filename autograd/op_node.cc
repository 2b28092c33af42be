// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/op_node.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/meta.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/elementwise.h"

namespace lockstep::autograd::internal {

class OpNode::Context final : public GradientContext {
 public:
  Context(const OpNode& node, absl::Span<Tensor> gradients, const InputMask& wanted,
          bool create_graph)
      : node_(node), gradients_(gradients), wanted_(wanted), create_graph_(create_graph) {}

  const Scalars& scalars() const override { return node_.scalars_; }
  const Attributes& attributes() const override {
    return node_.attributes_ ? *node_.attributes_ : EmptyAttributes();
  }
  int input_count() const override { return static_cast<int>(node_.inputs_.size()); }
  int output_count() const override { return static_cast<int>(node_.outputs().size()); }
  bool Wanted(int input) const override { return wanted_[input]; }
  const TensorMeta& InputMeta(int input) const override { return node_.inputs_[input]; }
  const TensorMeta& OutputMeta(int output) const override { return node_.outputs()[output]; }
  Tensor Input(int input) const override { return node_.UnpackInput(input, create_graph_); }
  Tensor Output(int output) const override { return node_.UnpackOutput(output, create_graph_); }
  const Tensor& Gradient(int output) const override { return gradients_[output]; }
  bool CreatesGraph() const override { return create_graph_; }

 private:
  const OpNode& node_;
  absl::Span<Tensor> gradients_;
  const InputMask& wanted_;
  bool create_graph_;
};

OpNode::OpNode(const OpCall& call, const GradientInfo& info)
    : Node(CapturedState::OfThread()), op_(call.op), info_(info), scalars_(call.scalars) {
  if (&call.attributes != &EmptyAttributes()) attributes_ = call.attributes.Clone();
  for (const Tensor& input : call.inputs) {
    inputs_.emplace_back(input);
    // What is not floating point has no gradient, whatever its history says.
    AddEdge(input.defined() && IsFloatingPoint(input.dtype()) ? EdgeOf(input) : Edge());
  }
}

void OpNode::SaveInputs(Saves saves, TensorSpan inputs) {
  saves_ = saves;
  for (uint32_t rest = saves.inputs; rest != 0; rest &= rest - 1) {
    const int index = std::countr_zero(rest);
    saved_.emplace_back(inputs[index], SavedBy{GetOpInfo(op_).name, SavedBy::Role::kInput, index});
  }
}

void OpNode::SaveOutputs(TensorSpan outputs) {
  for (uint32_t rest = saves_.outputs; rest != 0; rest &= rest - 1) {
    const int index = std::countr_zero(rest);
    saved_.emplace_back(outputs[index],
                        SavedBy{GetOpInfo(op_).name, SavedBy::Role::kOutput, index});
  }
}

std::string OpNode::Name() const { return GetOpInfo(op_).name; }

void OpNode::Apply(absl::Span<Tensor> gradients, const InputMask& wanted, bool create_graph,
                   absl::Span<Tensor> results) {
  const Context context(*this, gradients, wanted, create_graph);
  info_.gradient(context, results);
  CheckResults(wanted, create_graph, results);
}

void OpNode::CheckResults(const InputMask& wanted, bool create_graph,
                          absl::Span<Tensor> results) const {
  for (int i = 0; i < static_cast<int>(results.size()); ++i) {
    Tensor& result = results[i];
    if (!result.defined()) continue;
    if (!wanted[i]) {
      result = Tensor();
      continue;
    }
    const TensorMeta& meta = inputs_[i];
    // Autocast may have run the backward op in another floating-point dtype.
    if (result.dtype() != meta.dtype && IsFloatingPoint(result.dtype())) {
      result = To(result, meta.dtype);
    }
    if (!meta.Matches(result)) {
      throw InternalError(absl::StrCat("gradient of input ", i, " is ", result.DebugString(),
                                       " but the input is ", meta.DebugString(),
                                       create_graph ? " (with create_graph)" : ""));
    }
  }
}

SavedTensor OpNode::PeekSaved(uint32_t mask, int index, int first, absl::string_view role) const {
  std::lock_guard<std::mutex> lock(mutex());
  if (released_) {
    throw FailedPreconditionError(
        "what the graph saved has been freed by an earlier backward; pass retain_graph = true "
        "there "
        "to run backward through the same graph again");
  }
  if ((mask >> index & 1) == 0) throw InternalError(absl::StrCat(role, " was not saved"));
  return saved_[first + std::popcount(mask & ((1u << index) - 1))].Peek();
}

Tensor OpNode::UnpackInput(int input, bool create_graph) const {
  const std::string role = absl::StrCat("input ", input);
  return PeekSaved(saves_.inputs, input, 0, role)
      .Unpack(create_graph ? edges()[input] : Edge(), Name(), role);
}

Tensor OpNode::UnpackOutput(int output, bool create_graph) const {
  const std::string role = absl::StrCat("output ", output);
  Edge history;
  if (create_graph) {
    history.node = RefPtr<Node>(const_cast<OpNode*>(this));
    history.output = static_cast<uint32_t>(output);
  }
  return PeekSaved(saves_.outputs, output, std::popcount(saves_.inputs), role)
      .Unpack(history, Name(), role);
}

void OpNode::ReleaseSaved() {
  absl::InlinedVector<SavedTensor, 2> dropped;  // destroyed after the lock
  std::lock_guard<std::mutex> lock(mutex());
  if (saved_.empty()) return;
  dropped = std::move(saved_);
  saved_.clear();
  released_ = true;
}

}  // namespace lockstep::autograd::internal
