// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Rules of softmax, layer norm and cross entropy.

#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/shape_rules_util.h"

namespace lockstep {
namespace rules {
namespace {

void SoftmaxForward(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  RequireFloat(call, 0);
  RequireDim(call, 0, call.attributes.As<DimAttributes>().dim);
  Emit(call, outputs, call.inputs[0].shape(), call.inputs[0].dtype());
}

void SoftmaxGradient(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 2);
  RequireFloat(call, 0);
  RequireSameDType(call, 0, 1);
  RequireSameShape(call, 0, 1);
  RequireDim(call, 0, call.attributes.As<DimAttributes>().dim);
  Emit(call, outputs, call.inputs[0].shape(), call.inputs[0].dtype());
}

struct NormSizes {
  Shape leading;
  Shape normalized;
};

NormSizes RequireNormSizes(const OpCall& call, size_t x_index) {
  const int64_t normalized_rank = call.attributes.As<LayerNormAttributes>().normalized_rank;
  const Shape& x = call.inputs[x_index].shape();
  if (normalized_rank < 1 || normalized_rank > static_cast<int64_t>(x.size())) {
    Refuse(call, "normalized_rank ", normalized_rank, " is not in [1, ", x.size(),
           "], the rank of x of shape ", ToString(x));
  }
  const auto border = x.end() - normalized_rank;
  return {Shape(x.begin(), border), Shape(border, x.end())};
}

// Statistics and sums are in float32 whatever x is, so 16-bit x may come with float32 parameters.
void RequireNormParameter(const OpCall& call, size_t index, size_t x_index, ShapeSpan normalized) {
  const DType x = call.inputs[x_index].dtype();
  const DType dtype = call.inputs[index].dtype();
  if (dtype != x && !(IsReducedFloat(x) && dtype == DType::kFloat32)) {
    RefuseDTypePair(call, x_index, index);
  }
  RequireShape(call, index, normalized,
               absl::StrCat("the normalised dimensions of ", InputName(call, x_index), " of shape ",
                            ToString(call.inputs[x_index].shape())));
}

// Loss of logits (input `first`) and target (the next).
Shape RequireCrossEntropy(const OpCall& call, size_t first) {
  RequireFloat(call, first);
  RequireRank(call, first, 2, 2);
  RequireDType(call, first + 1, DType::kInt64);
  const Shape& logits = call.inputs[first].shape();
  RequireShape(call, first + 1, {logits[0]},
               absl::StrCat("one class a row of logits ", ToString(logits)));
  const auto& attributes = call.attributes.As<CrossEntropyAttributes>();
  return attributes.reduction == Reduction::kNone ? Shape{logits[0]} : Shape{};
}

}  // namespace

void InferSoftmax(const OpCall& call, SpecList& outputs) { SoftmaxForward(call, outputs); }
void InferSoftmaxBackward(const OpCall& call, SpecList& outputs) { SoftmaxGradient(call, outputs); }
void InferLogSoftmax(const OpCall& call, SpecList& outputs) { SoftmaxForward(call, outputs); }
void InferLogSoftmaxBackward(const OpCall& call, SpecList& outputs) {
  SoftmaxGradient(call, outputs);
}

void InferLayerNorm(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 3, 1, /*optional=*/0b110);
  RequireFloat(call, 0);
  const NormSizes sizes = RequireNormSizes(call, 0);
  for (const size_t index : {size_t{1}, size_t{2}}) {
    if (call.inputs[index].defined()) RequireNormParameter(call, index, 0, sizes.normalized);
  }
  if (call.inputs[1].defined() && call.inputs[2].defined()) RequireSameDType(call, 1, 2);
  const DType dtype = call.inputs[0].dtype();
  Emit(call, outputs, call.inputs[0].shape(), dtype);
  Emit(call, outputs, sizes.leading, StatisticsDType(dtype));
  Emit(call, outputs, sizes.leading, StatisticsDType(dtype));
}

// Inputs: grad, x, mean, rstd, weight?.
void InferLayerNormBackward(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 5, 0, /*optional=*/0b10000);
  RequireFloat(call, 1);
  RequireSameDType(call, 1, 0);
  RequireSameShape(call, 1, 0);
  const NormSizes sizes = RequireNormSizes(call, 1);
  const DType dtype = call.inputs[1].dtype();
  for (const size_t index : {size_t{2}, size_t{3}}) {
    RequireDType(call, index, StatisticsDType(dtype));
    RequireShape(call, index, sizes.leading, "one value for each normalised row of x");
  }
  const Tensor& weight = call.inputs[4];
  if (weight.defined()) RequireNormParameter(call, 4, 1, sizes.normalized);
  const DType parameter_dtype = weight.defined() ? weight.dtype() : dtype;
  Emit(call, outputs, call.inputs[1].shape(), dtype);
  Emit(call, outputs, sizes.normalized, parameter_dtype);
  Emit(call, outputs, sizes.normalized, parameter_dtype);
}

void InferCrossEntropy(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 2, 1);
  const Shape loss = RequireCrossEntropy(call, 0);
  const DType dtype = call.inputs[0].dtype();
  Emit(call, outputs, loss, dtype);
  Emit(call, outputs, {call.inputs[0].shape()[0]}, StatisticsDType(dtype));
}

// Inputs: grad, logits, target, log_sum_exp.
void InferCrossEntropyBackward(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 4, 1);
  const Shape loss = RequireCrossEntropy(call, 1);
  RequireSameDType(call, 1, 0);
  RequireShape(call, 0, loss, "as the loss has");
  const Tensor& logits = call.inputs[1];
  RequireDType(call, 3, StatisticsDType(logits.dtype()));
  RequireShape(call, 3, {logits.shape()[0]}, "one value for each row of logits");
  Emit(call, outputs, logits.shape(), logits.dtype());
}

}  // namespace rules
}  // namespace lockstep
