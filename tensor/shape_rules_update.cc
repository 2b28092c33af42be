// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Rules of the ops that write parameters and other lists of tensors. They have no outputs of their
// own (but GlobalNorm), so each rule is a validation of the whole call.

#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/shape_rules_util.h"

namespace lockstep {
namespace rules {
namespace {

// Inputs `a` and `b` belong to one parameter.
void RequireMatch(const OpCall& call, size_t a, size_t b) {
  if (call.inputs[a].shape() != call.inputs[b].shape()) {
    Refuse(call, InputName(call, a), " has shape ", ToString(call.inputs[a].shape()), " and ",
           InputName(call, b), " has ", ToString(call.inputs[b].shape()),
           "; they must be the same");
  }
}

// Optimizer state of a 16-bit parameter may be float32.
void RequireState(const OpCall& call, size_t parameter, size_t state) {
  RequireMatch(call, parameter, state);
  const DType dtype = call.inputs[parameter].dtype();
  const bool wider = IsReducedFloat(dtype) && call.inputs[state].dtype() == DType::kFloat32;
  if (!wider) RequireSameDType(call, parameter, state);
  RequireWritable(call, state);
}

// State that an attribute asks for, or that is undefined without it.
void RequireStateIf(const OpCall& call, bool wanted, const char* attribute, size_t parameter,
                    size_t state) {
  if (wanted && !call.inputs[state].defined()) {
    Refuse(call, InputName(call, state), " is undefined; pass a tensor");
  }
  if (wanted) {
    RequireState(call, parameter, state);
  } else if (call.inputs[state].defined()) {
    Refuse(call, InputName(call, state), " is given without ", attribute);
  }
}

void RequireParameter(const OpCall& call, size_t parameter, size_t gradient) {
  RequireFloat(call, parameter);
  RequireMatch(call, parameter, gradient);
  RequireSameDType(call, parameter, gradient);
  RequireWritable(call, parameter);
}

}  // namespace

void InferCopyInto(const OpCall& call, SpecList&) {
  RequireOperands(call, 2);
  const Tensor& source = call.inputs[1];
  BroadcastStrides(source.shape(), source.strides(), call.inputs[0].shape(), "CopyInto: source");
  RequireWritable(call, 0);
}

void InferAdamStep(const OpCall& call, SpecList&) {
  const bool amsgrad = call.attributes.As<AdamAttributes>().amsgrad;
  const size_t count = RequireLists(call, 5, 0, 6, /*optional_lists=*/1);
  for (size_t i = 0; i < count; ++i) {
    RequireParameter(call, i, count + i);
    RequireState(call, i, 2 * count + i);
    RequireState(call, i, 3 * count + i);
    RequireStateIf(call, amsgrad, "amsgrad", i, 4 * count + i);
  }
}

void InferSgdStep(const OpCall& call, SpecList&) {
  const bool use_momentum = call.attributes.As<SgdAttributes>().use_momentum;
  // Without momentum the third list is there too, so that lists have one length; it is empty
  // inside.
  const size_t count = RequireLists(call, 3, 0, 4, /*optional_lists=*/1);
  for (size_t i = 0; i < count; ++i) {
    RequireParameter(call, i, count + i);
    RequireStateIf(call, use_momentum, "use_momentum", i, 2 * count + i);
  }
}

void InferRmspropStep(const OpCall& call, SpecList&) {
  const auto& attributes = call.attributes.As<RmspropAttributes>();
  const size_t count = RequireLists(call, 5, 0, 5, /*optional_lists=*/2);
  for (size_t i = 0; i < count; ++i) {
    RequireParameter(call, i, count + i);
    RequireState(call, i, 2 * count + i);
    RequireStateIf(call, attributes.use_momentum, "use_momentum", i, 3 * count + i);
    RequireStateIf(call, attributes.centered, "centered", i, 4 * count + i);
  }
}

void InferAdagradStep(const OpCall& call, SpecList&) {
  const size_t count = RequireLists(call, 3, 0, 5);
  for (size_t i = 0; i < count; ++i) {
    RequireParameter(call, i, count + i);
    RequireState(call, i, 2 * count + i);
  }
}

void InferLerpInto(const OpCall& call, SpecList&) {
  const size_t count = RequireLists(call, 2, 0, 1);
  for (size_t i = 0; i < count; ++i) {
    RequireFloat(call, count + i);
    RequireState(call, count + i, i);
  }
}

void InferGlobalNorm(const OpCall& call, SpecList& outputs) {
  const size_t count = RequireLists(call, 1, 0, 0);
  DType dtype = DType::kFloat32;
  for (size_t i = 0; i < count; ++i) {
    RequireFloat(call, i);
    if (call.inputs[i].dtype() == DType::kFloat64) dtype = DType::kFloat64;
  }
  Emit(call, outputs, Shape(), dtype);
}

void InferUnscaleAndCheck(const OpCall& call, SpecList&) {
  const size_t count = RequireLists(call, 1, 1, 1);
  for (size_t i = 0; i < count; ++i) {
    RequireFloat(call, i);
    RequireWritable(call, i);
  }
  if (call.inputs[count].dtype() != DType::kFloat32) RefuseDType(call, count, "dtype float32");
  RequireShape(call, count, Shape(), "one flag for all gradients");
  RequireWritable(call, count);
}

void InferClipByNorm(const OpCall& call, SpecList&) {
  const size_t count = RequireLists(call, 1, 1, 1);
  for (size_t i = 0; i < count; ++i) {
    RequireFloat(call, i);
    RequireWritable(call, i);
  }
  const DType norm = call.inputs[count].dtype();
  if (norm != DType::kFloat32 && norm != DType::kFloat64) {
    RefuseDType(call, count, "dtype float32 or float64");
  }
  RequireShape(call, count, Shape(), "one norm for all gradients");
}

}  // namespace rules
}  // namespace lockstep
