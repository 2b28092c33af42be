// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// The autocast slot of dispatch: casts an op's inputs as its class in the op table says. Linked
// with the scope (alwayslink).

#include "absl/strings/str_cat.h"
#include "lockstep/amp/autocast_state.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/ops/elementwise.h"

namespace lockstep::amp::internal {
namespace {

constexpr DispatchLayer kSlot = DispatchLayer::kAutocast;

bool IsEligible(const Tensor& tensor) {
  return tensor.defined() && IsFloatingPoint(tensor.dtype()) && tensor.dtype() != DType::kFloat64;
}

// Whose copy the scope keeps.
bool IsTrainedParameter(const Tensor& tensor) {
  return tensor.dtype() == DType::kFloat32 && autograd::RequiresGrad(tensor) &&
         autograd::IsLeaf(tensor);
}

Tensor CastTo(const AutocastState& state, const Tensor& tensor, DType dtype) {
  if (!IsEligible(tensor) || tensor.dtype() == dtype) return tensor;
  if (state.cache_enabled && dtype != DType::kFloat32 && IsTrainedParameter(tensor)) {
    return state.cache->Cast(tensor, dtype);
  }
  return To(tensor, dtype);
}

TensorList DispatchIn(const AutocastState& state, const OpCall& call, DType dtype) {
  bool changes = false;
  for (const Tensor& input : call.inputs) {
    changes |= IsEligible(input) && input.dtype() != dtype;
  }
  if (!changes) return DispatchBelow(kSlot, call);
  TensorList inputs;
  {
    // A checkpointing policy counts the calls of an op. Whether a cast is one depends on the cache,
    // and the second run of a region begins with another one; so the casts are part of this call.
    const LayerScope part_of_the_call(DispatchLayer::kCheckpoint, false);
    for (const Tensor& input : call.inputs) inputs.push_back(CastTo(state, input, dtype));
  }
  return DispatchBelow(kSlot, {call.op, inputs, call.scalars, call.attributes});
}

// The widest among the inputs: float32 unless all have the same 16 bits.
TensorList DispatchPromoted(const AutocastState& state, const OpCall& call) {
  const Tensor* first = nullptr;
  DType widest = DType::kFloat32;
  for (const Tensor& input : call.inputs) {
    if (!input.defined() || !IsFloatingPoint(input.dtype())) continue;
    // Promotion of the op itself takes it from here.
    if (input.dtype() == DType::kFloat64) return DispatchBelow(kSlot, call);
    widest = first == nullptr || first->dtype() == input.dtype() ? input.dtype() : DType::kFloat32;
    if (widest == DType::kFloat32) break;
    first = &input;
  }
  return DispatchIn(state, call, widest);
}

[[noreturn]] void Refuse(const OpInfo& info) {
  throw InvalidArgumentError(absl::StrCat(
      info.name, ": is unsafe under autocast: its results leave the range of 16 bits. ", info.doc,
      "; or call it inside amp::Autocast({.enabled = false}) with inputs cast to float32"));
}

Device DeviceOf(const OpCall& call) {
  for (const Tensor& input : call.inputs) {
    if (input.defined()) return input.device();
  }
  return CurrentDevice();
}

// A lookup in a table of parameters, frozen ones too, which pure scopes run in 16 bits.
bool IsParameterLookup(const OpInfo& info, const OpCall& call) {
  return info.kind == OpKind::kIndexing && info.differentiable && !info.has_lists &&
         IsEligible(call.inputs[0]) &&
         (IsTrainedParameter(call.inputs[0]) ||
          (call.inputs[0].impl().storage != nullptr &&
           call.inputs[0].impl().storage->category() == MemoryCategory::kParameter));
}

TensorList AutocastLayer(const OpCall& call) {
  const AutocastState* state = CurrentAutocastState();
  if (state == nullptr || call.in_place) return DispatchBelow(kSlot, call);
  const DeviceType type = DeviceOf(call).type;
  const AutocastState::Precision& precision = state->at(type);
  if (!precision.enabled) return DispatchBelow(kSlot, call);
  const OpInfo& info = GetOpInfo(call.op);
  switch (info.amp(type)) {
    case AmpClass::kUntouched:
      if (!precision.pure || !IsParameterLookup(info, call)) break;
      return DispatchIn(*state, call, precision.dtype);
    case AmpClass::kLowPrecision:
      return DispatchIn(*state, call, precision.dtype);
    case AmpClass::kFp32:
    case AmpClass::kFp32IfUnset:  // no op of the table takes a dtype so far
      return DispatchIn(*state, call, DType::kFloat32);
    case AmpClass::kPromote:
      return DispatchPromoted(*state, call);
    case AmpClass::kRefused:
      Refuse(info);
  }
  return DispatchBelow(kSlot, call);
}

struct Registration {
  // Off until a scope turns it on.
  Registration() { RegisterLayer(kSlot, &AutocastLayer, /*on_by_default=*/false); }
};
const Registration registration;

}  // namespace
}  // namespace lockstep::amp::internal
