// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/custom_function.h"

#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/meta.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/substitution.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::autograd {
namespace {

using internal::Edge;
using internal::Node;
using internal::SavedBy;
using internal::SavedTensor;

class CustomNode final : public Node {
 public:
  CustomNode(std::shared_ptr<CustomFunction> function, TensorSpan inputs);

  // Between Forward and the attachment of outputs.
  class ForwardContext;
  void Finish(const ForwardContext& context, TensorSpan inputs, TensorSpan outputs);

  std::string Name() const override { return function_->Name(); }
  bool RunsAtOnce() const override { return function_->RunsBackwardAtOnce(); }
  void Apply(absl::Span<Tensor> gradients, const InputMask& wanted, bool create_graph,
             absl::Span<Tensor> results) override;
  void ReleaseSaved() override;
  std::vector<Tensor> Unpack(bool create_graph) const;

 private:
  struct Saved {
    SavedTensor tensor;
    int input = -1;   // position, when it is an input
    int output = -1;  // when it is an output
  };

  std::shared_ptr<CustomFunction> function_;
  std::vector<TensorMeta> inputs_;
  std::vector<Saved> saved_;
  bool materialize_ = true;
  bool released_ = false;
};

[[noreturn]] void ThrowWrongPhase(const char* function, const char* phase) {
  throw FailedPreconditionError(
      absl::StrCat("FunctionContext::", function, ": call it in ", phase));
}

class CustomNode::ForwardContext final : public FunctionContext {
 public:
  explicit ForwardContext(const InputMask& wanted) : wanted_(wanted) {}

  void SaveForBackward(TensorSpan tensors) override {
    if (saved_once_) {
      throw FailedPreconditionError(
          "FunctionContext::SaveForBackward: called twice; give all tensors in one call");
    }
    saved_once_ = true;
    to_save_.assign(tensors.begin(), tensors.end());
  }
  std::vector<Tensor> Saved() const override { ThrowWrongPhase("Saved", "Backward"); }
  bool Wanted(int index) const override { return wanted_[index]; }
  void MarkNonDifferentiable(int index) override { non_differentiable_.Set(index); }
  void SetMaterializeGradients(bool materialize) override { materialize_ = materialize; }
  bool CreatesGraph() const override { ThrowWrongPhase("CreatesGraph", "Backward"); }

  const InputMask& wanted_;
  std::vector<Tensor> to_save_;
  InputMask non_differentiable_;
  bool materialize_ = true;
  bool saved_once_ = false;
};

class BackwardContext final : public FunctionContext {
 public:
  BackwardContext(const CustomNode& node, const InputMask& wanted, bool create_graph)
      : node_(node), wanted_(wanted), create_graph_(create_graph) {}

  void SaveForBackward(TensorSpan) override { ThrowWrongPhase("SaveForBackward", "Forward"); }
  std::vector<Tensor> Saved() const override { return node_.Unpack(create_graph_); }
  bool Wanted(int index) const override { return wanted_[index]; }
  void MarkNonDifferentiable(int) override { ThrowWrongPhase("MarkNonDifferentiable", "Forward"); }
  void SetMaterializeGradients(bool) override {
    ThrowWrongPhase("SetMaterializeGradients", "Forward");
  }
  bool CreatesGraph() const override { return create_graph_; }

 private:
  const CustomNode& node_;
  const InputMask& wanted_;
  bool create_graph_;
};

CustomNode::CustomNode(std::shared_ptr<CustomFunction> function, TensorSpan inputs)
    : Node(internal::CapturedState::OfThread()), function_(std::move(function)) {
  for (const Tensor& input : inputs) {
    inputs_.emplace_back(input);
    AddEdge(input.defined() && IsFloatingPoint(input.dtype()) ? internal::EdgeOf(input) : Edge());
  }
}

int PositionOf(const Tensor& tensor, TensorSpan tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined() && tensors[i].IsSame(tensor)) return static_cast<int>(i);
  }
  return -1;
}

void CustomNode::Finish(const ForwardContext& context, TensorSpan inputs, TensorSpan outputs) {
  materialize_ = context.materialize_;
  const std::string name = Name();
  for (const Tensor& tensor : context.to_save_) {
    Saved saved;
    if (tensor.defined()) {
      saved.input = PositionOf(tensor, inputs);
      saved.output = saved.input < 0 ? PositionOf(tensor, outputs) : -1;
    }
    saved.tensor =
        SavedTensor(tensor, {name, SavedBy::Role::kOther, static_cast<int>(saved_.size())});
    saved_.push_back(std::move(saved));
  }
  for (const Tensor& output : outputs) AddOutput(output);
}

std::vector<Tensor> CustomNode::Unpack(bool create_graph) const {
  std::vector<SavedTensor> copies;
  std::vector<Edge> histories;
  {
    std::lock_guard<std::mutex> lock(mutex());
    if (released_) {
      throw FailedPreconditionError(
          "what the graph saved has been freed by an earlier backward; pass retain_graph = true "
          "there to run backward through the same graph again");
    }
    for (const Saved& saved : saved_) {
      copies.push_back(saved.tensor.Peek());
      Edge history;
      if (create_graph && saved.input >= 0) {
        history = edges()[saved.input];
      } else if (create_graph && saved.output >= 0) {
        history = {
            RefPtr<Node>(const_cast<CustomNode*>(this)), {}, static_cast<uint32_t>(saved.output)};
      }
      histories.push_back(std::move(history));
    }
  }
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < copies.size(); ++i) {
    tensors.push_back(copies[i].Unpack(histories[i], Name(), absl::StrCat("saved tensor ", i)));
  }
  return tensors;
}

void CustomNode::Apply(absl::Span<Tensor> gradients, const InputMask& wanted, bool create_graph,
                       absl::Span<Tensor> results) {
  std::vector<Tensor> incoming(gradients.begin(), gradients.end());
  for (size_t i = 0; i < incoming.size() && materialize_; ++i) {
    if (incoming[i].defined()) continue;
    incoming[i] =
        Zeros(outputs()[i].shape, {.dtype = outputs()[i].dtype, .device = outputs()[i].device});
  }
  BackwardContext context(*this, wanted, create_graph);
  std::vector<Tensor> returned = function_->Backward(context, incoming);
  if (returned.size() != results.size()) {
    throw InvalidArgumentError(absl::StrCat("Backward returned ", returned.size(),
                                            " gradients for ", results.size(),
                                            " inputs; return one for each (undefined for none)"));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!returned[i].defined() || !wanted[static_cast<int>(i)]) continue;
    if (!inputs_[i].Matches(returned[i])) {
      throw InvalidArgumentError(absl::StrCat("Backward returned ", returned[i].DebugString(),
                                              " for input ", i, ", which is ",
                                              inputs_[i].DebugString(), "; return the same kind"));
    }
    results[i] = std::move(returned[i]);
  }
}

void CustomNode::ReleaseSaved() {
  std::vector<Saved> dropped;  // destroyed after the lock
  std::lock_guard<std::mutex> lock(mutex());
  if (saved_.empty()) return;
  dropped.swap(saved_);
  released_ = true;
}

struct RecordPlan {
  bool record = false;
  InputMask wanted;
  std::vector<int64_t> versions;
};

RecordPlan PlanRecording(const std::string& name, TensorSpan inputs) {
  RecordPlan plan;
  const bool enabled = GradEnabled();
  for (size_t i = 0; i < inputs.size(); ++i) {
    plan.versions.push_back(inputs[i].defined() ? inputs[i].version() : 0);
    if (!enabled || !inputs[i].defined() || !IsFloatingPoint(inputs[i].dtype())) continue;
    if (internal::WantsGradient(inputs[i])) plan.wanted.Set(static_cast<int>(i));
  }
  plan.record = plan.wanted.any();
  for (size_t i = 0; i < inputs.size() && plan.record; ++i) {
    const auto* meta = inputs[i].defined() ? internal::MetaOf(inputs[i]) : nullptr;
    if (meta == nullptr) continue;
    if (meta->inference) {
      throw FailedPreconditionError(absl::StrCat(
          name, ": input ", i, " was made in an InferenceScope; Clone() it outside first"));
    }
    if (meta->IsStaleView()) {
      throw FailedPreconditionError(absl::StrCat(
          name, ": input ", i,
          " is a view made before its base was changed in place; make the view again"));
    }
  }
  return plan;
}

// Null unless `output` shows an input's elements.
std::unique_ptr<internal::ViewInfo> ViewOfInput(const Tensor& output, TensorSpan inputs) {
  for (const Tensor& input : inputs) {
    if (!input.defined() || !output.impl().storage) continue;
    if (input.impl().storage != output.impl().storage) continue;
    const internal::AutogradMeta* meta = internal::MetaOf(input);
    auto info = std::make_unique<internal::ViewInfo>();
    info->base = meta != nullptr && meta->view ? meta->view->base : input;
    if (const auto* base = internal::MetaOf(info->base)) info->base_history = base->history_count;
    return info;
  }
  return nullptr;
}

void CheckForward(const std::string& name, const RecordPlan& plan, TensorSpan inputs,
                  TensorSpan outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined()) continue;
    throw InvalidArgumentError(absl::StrCat(name, ": Forward returned an undefined output ", i));
  }
  for (size_t i = 0; i < inputs.size() && plan.record; ++i) {
    if (!inputs[i].defined() || inputs[i].version() == plan.versions[i]) continue;
    if (!internal::WantsGradient(inputs[i])) continue;
    throw FailedPreconditionError(
        absl::StrCat(name, ": Forward changed input ", i, " (", inputs[i].DebugString(),
                     ") in place, and it requires a gradient; return a new tensor instead"));
  }
}

}  // namespace

std::vector<Tensor> Apply(std::shared_ptr<CustomFunction> function, TensorSpan inputs) {
  if (function == nullptr) throw InvalidArgumentError("Apply: no function given");
  const std::string name = function->Name();
  TensorList substituted;
  if (InSubstitution()) {
    for (const Tensor& input : inputs) substituted.push_back(Substituted(input));
    inputs = substituted;
  }
  const RecordPlan plan = PlanRecording(name, inputs);
  CustomNode::ForwardContext context(plan.wanted);
  std::vector<Tensor> outputs;
  const bool inference = InferenceEnabled();
  const bool activation = plan.record && CurrentThreadState().category == MemoryCategory::kOther;
  const CategoryScope category(activation ? MemoryCategory::kActivation
                                          : CurrentThreadState().category);
  if (inference) {
    outputs = function->Forward(context, inputs);
  } else {
    NoGradScope no_grad;
    outputs = function->Forward(context, inputs);
  }
  CheckForward(name, plan, inputs, outputs);
  // An output is a tensor of its own: giving an input's history a second meaning would be wrong.
  std::vector<Tensor> results;
  for (const Tensor& output : outputs) {
    const bool own = PositionOf(output, inputs) < 0 && internal::MetaOf(output) == nullptr &&
                     PositionOf(output, results) < 0;
    results.push_back(own || inference ? output : internal::Alias(output));
  }
  if (!plan.record) return results;
  RefPtr<CustomNode> node = MakeRef<CustomNode>(std::move(function), inputs);
  node->Finish(context, inputs, outputs);
  for (size_t i = 0; i < results.size(); ++i) {
    const int index = static_cast<int>(i);
    if (context.non_differentiable_[index] || !IsFloatingPoint(results[i].dtype())) continue;
    internal::AutogradMeta& meta = internal::EnsureMeta(results[i]);
    meta.SetHistory(RefPtr<Node>(node.get()), static_cast<uint32_t>(i));
    meta.view = ViewOfInput(results[i], inputs);
  }
  return results;
}

}  // namespace lockstep::autograd
