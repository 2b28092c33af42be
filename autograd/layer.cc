// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// The gradients slot of dispatch: records op calls whose inputs require gradients, and keeps
// histories, views and marks right for all others. Linking this target turns recording on.

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/grad_state.h"
#include "lockstep/autograd/gradient.h"
#include "lockstep/autograd/gradients/builtin.h"
#include "lockstep/autograd/meta.h"
#include "lockstep/autograd/op_node.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"

namespace lockstep::autograd::internal {
namespace {

constexpr DispatchLayer kSlot = DispatchLayer::kGradients;

// "Add" or "Add in place".
std::string CallName(const OpCall& call) {
  return absl::StrCat(GetOpInfo(call.op).name, call.in_place ? " in place" : "");
}

[[noreturn]] void ThrowInference(const OpCall& call, size_t index) {
  throw FailedPreconditionError(absl::StrCat(
      CallName(call), ": input ", index, " (", call.inputs[index].DebugString(),
      ") was made in an InferenceScope and cannot enter a recorded op; Clone() it here first, or "
      "make it under NoGradScope instead"));
}

[[noreturn]] void ThrowStaleView(const OpCall& call, size_t index) {
  throw FailedPreconditionError(absl::StrCat(
      CallName(call), ": input ", index, " (", call.inputs[index].DebugString(),
      ") is a view made before its base was changed in place by a recorded op, so its gradient "
      "would be wrong; make the view again after the change"));
}

// Whether `tensor` may show another tensor's elements without this layer knowing: a view made
// while nothing was recorded.
bool MayBeUntrackedView(const Tensor& tensor) {
  const Storage* storage = tensor.impl().storage.get();
  if (storage == nullptr || MetaOf(tensor) != nullptr) return false;
  return tensor.bytes() < storage->bytes() || storage->ref_count() > 1;
}

// A recorded op must not write to a tensor whose elements others show under another history.
void CheckRecordedWrite(const OpCall& call, const Tensor& target) {
  const AutogradMeta* meta = MetaOf(target);
  if (meta != nullptr && meta->view) {
    throw UnimplementedError(absl::StrCat(
        CallName(call), ": ", target.DebugString(),
        " is a view, and recorded ops do not write to views; use the form that returns a new "
        "tensor (Concat or Where to put pieces together), or NoGradScope if no gradient is "
        "wanted"));
  }
  if (meta != nullptr && meta->requires_grad && !meta->node) {
    throw FailedPreconditionError(absl::StrCat(
        CallName(call), ": ", target.DebugString(),
        " is a leaf that requires a gradient, and cannot be changed in place by a recorded op; "
        "change it inside a NoGradScope, or use the form that returns a new tensor"));
  }
  if (MayBeUntrackedView(target)) {
    throw FailedPreconditionError(absl::StrCat(
        CallName(call), ": ", target.DebugString(),
        " shares its elements with another tensor (it was detached, or made while nothing was "
        "recorded), whose history would not see the change; Clone() it first"));
  }
}

// Non-differentiable ops that write (optimizer steps) change leaves outside of any history.
void CheckUnrecordedWrites(const OpInfo& info, const OpCall& call) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i].defined() || !WritesInput(info, call, i) ||
        !WantsGradient(call.inputs[i])) {
      continue;
    }
    throw FailedPreconditionError(absl::StrCat(
        CallName(call), ": writes to input ", i, " (", call.inputs[i].DebugString(),
        "), which requires a gradient, and has no gradient itself; call it inside a NoGradScope"));
  }
}

void TrackViews(const Tensor& source, const TensorList& outputs) {
  const AutogradMeta* meta = MetaOf(source);
  ViewInfo info{meta != nullptr && meta->view ? meta->view->base : source, 0};
  if (const AutogradMeta* base = MetaOf(info.base)) info.base_history = base->history_count;
  for (const Tensor& output : outputs) EnsureMeta(output).view = std::make_unique<ViewInfo>(info);
}

bool MakesTrackedViews(const OpInfo& info, OpId op) {
  return info.view_of >= 0 && op != OpId::kDetach;
}

// Forward results are activations unless a scope says otherwise.
class ActivationScope {
 public:
  ActivationScope() : set_(CurrentThreadState().category == MemoryCategory::kOther) {
    if (set_) MutableThreadState().category = MemoryCategory::kActivation;
  }
  ~ActivationScope() {
    if (set_) MutableThreadState().category = MemoryCategory::kOther;
  }
  ActivationScope(const ActivationScope&) = delete;
  ActivationScope& operator=(const ActivationScope&) = delete;

 private:
  bool set_;
};

// Inputs that the call overwrites but the gradient needs, copied as they are now.
TensorList CopyOverwritten(const OpInfo& info, const OpCall& call, uint32_t saved_inputs) {
  TensorList inputs(call.inputs.begin(), call.inputs.end());
  if ((!call.in_place && info.mutates == 0) || saved_inputs == 0) return inputs;
  const Storage* written = call.inputs[0].impl().storage.get();
  for (size_t i = 0; i < inputs.size() && i < 32; ++i) {
    if ((saved_inputs >> i & 1) == 0 || !inputs[i].defined()) continue;
    if (inputs[i].impl().storage.get() != written) continue;
    NoGradScope no_grad;
    inputs[i] = Clone(inputs[i]);
  }
  return inputs;
}

void AttachHistory(const RefPtr<OpNode>& node, const GradientInfo& gradient,
                   const TensorList& results, bool rebase) {
  for (size_t i = 0; i < results.size(); ++i) node->AddOutput(results[i]);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!IsFloatingPoint(results[i].dtype())) continue;
    if (i < 32 && (gradient.non_differentiable_outputs >> i & 1) != 0) continue;
    AutogradMeta& meta = EnsureMeta(results[i]);
    if (rebase && meta.retains_grad) {
      if (meta.node) meta.node->Retain(meta.output, nullptr);
      node->Retain(static_cast<uint32_t>(i), meta.slot);
    }
    meta.SetHistory(RefPtr<Node>(node.get()), static_cast<uint32_t>(i));
    if (rebase) ++meta.history_count;
  }
}

// Runs the call, or takes the results that it has already.
TensorList Compute(const GradState* state, const OpCall& call) {
  if (state != nullptr && state->computed != nullptr) {
    ComputedOutputs& computed = *state->computed;
    if (computed.op == call.op && !computed.taken) {
      computed.taken = true;
      return std::move(computed.outputs);
    }
  }
  return DispatchBelow(kSlot, call);
}

TensorList Record(const OpInfo& info, const OpCall& call, const GradState* state) {
  const GradientInfo* gradient = FindGradient(call.op);
  if (gradient == nullptr) {
    throw UnimplementedError(
        absl::StrCat(info.name,
                     ": an input requires a gradient, and none is registered for this op; call "
                     "RegisterGradient, or run it inside a NoGradScope"));
  }
  // Ops that write have no outputs, or one that is the written input: that one gets the history.
  const bool writes = call.in_place || info.mutates != 0;
  if (writes) CheckRecordedWrite(call, call.inputs[0]);
  InputMask wanted;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& input = call.inputs[i];
    if (input.defined() && IsFloatingPoint(input.dtype()) && WantsGradient(input)) {
      wanted.Set(static_cast<int>(i));
    }
  }
  const Saves saves =
      gradient->saves != nullptr && wanted.any() ? gradient->saves(call, wanted) : Saves();
  ActivationScope activation;
  RefPtr<OpNode> node;
  if (wanted.any()) {
    TensorList kept;
    if (writes) kept = CopyOverwritten(info, call, saves.inputs);
    node = MakeRef<OpNode>(call, *gradient);
    node->SaveInputs(saves, writes ? TensorSpan(kept) : call.inputs);
  }
  TensorList outputs = Compute(state, call);
  const TensorList written = writes ? TensorList{call.inputs[0]} : TensorList();
  const TensorList& results = writes ? written : outputs;
  bool differentiable = false;
  for (const Tensor& result : results) differentiable |= IsFloatingPoint(result.dtype());
  if (!node || !differentiable) {
    if (MakesTrackedViews(info, call.op)) TrackViews(call.inputs[info.view_of], outputs);
    return outputs;
  }
  node->SaveOutputs(results);
  if (MakesTrackedViews(info, call.op)) TrackViews(call.inputs[info.view_of], outputs);
  AttachHistory(node, *gradient, results, writes);
  return outputs;
}

// Inside an InferenceScope: nothing is recorded and results are marked.
TensorList RunInference(const OpInfo& info, const OpCall& call) {
  TensorList outputs = DispatchBelow(kSlot, call);
  if (call.in_place) return outputs;
  if (info.view_of >= 0) {
    const AutogradMeta* source = MetaOf(call.inputs[info.view_of]);
    if (source == nullptr || !source->inference) return outputs;
  }
  for (const Tensor& output : outputs) EnsureMeta(output).inference = true;
  return outputs;
}

TensorList GradientsLayer(const OpCall& call) {
  const OpInfo& info = GetOpInfo(call.op);
  const GradState* state = CurrentGradState();
  if (state != nullptr && state->inference) return RunInference(info, call);

  bool requires_grad = false;
  bool special = false;
  for (const Tensor& input : call.inputs) {
    if (!input.defined()) continue;
    const AutogradMeta* meta = MetaOf(input);
    if (meta == nullptr) continue;
    requires_grad |= meta->requires_grad;
    special |= meta->inference || meta->view != nullptr;
  }
  if (special && info.differentiable) {
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const AutogradMeta* meta = call.inputs[i].defined() ? MetaOf(call.inputs[i]) : nullptr;
      if (meta == nullptr) continue;
      if (meta->inference && requires_grad) ThrowInference(call, i);
      if (meta->IsStaleView()) ThrowStaleView(call, i);
    }
  }
  if (requires_grad && info.differentiable) return Record(info, call, state);
  if (requires_grad && (info.mutates != 0 || call.in_place)) CheckUnrecordedWrites(info, call);
  TensorList outputs = Compute(state, call);
  if (MakesTrackedViews(info, call.op)) TrackViews(call.inputs[info.view_of], outputs);
  return outputs;
}

struct Registration {
  Registration() {
    RegisterBuiltinGradients();
    RegisterLayer(kSlot, &GradientsLayer, /*on_by_default=*/true);
  }
};
const Registration registration;

}  // namespace
}  // namespace lockstep::autograd::internal
