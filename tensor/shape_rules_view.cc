// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Rules of views. Strides and offset are those into the storage of the input.

#include <utility>

#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/shape_rules_util.h"

namespace lockstep {
namespace rules {

void InferView(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  const Tensor& x = call.inputs[0];
  const Shape& target = call.attributes.As<ShapeAttributes>().shape;
  if (NumElements(target, OpName(call)) != x.numel()) {
    Refuse(call, "shape ", ToString(target), " does not hold the ", x.numel(), " elements of x ",
           ToString(x.shape()));
  }
  std::optional<Strides> strides = ViewStrides(x.shape(), x.strides(), target);
  if (!strides.has_value()) {
    Refuse(call, "x of shape ", ToString(x.shape()), " with strides ", ToString(x.strides()),
           " cannot be seen as ", ToString(target), " without a copy; use Reshape");
  }
  EmitView(outputs, x, target, *std::move(strides));
}

void InferPermute(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  const Tensor& x = call.inputs[0];
  const Shape& dims = call.attributes.As<PermuteAttributes>().dims;
  Shape shape;
  Strides strides;
  absl::InlinedVector<bool, 8> seen(x.shape().size(), false);
  bool valid = dims.size() == x.shape().size();
  for (size_t i = 0; valid && i < dims.size(); ++i) {
    const int64_t dim = dims[i];
    valid = dim >= 0 && dim < x.rank() && !seen[dim];
    if (!valid) break;
    seen[dim] = true;
    shape.push_back(x.shape()[dim]);
    strides.push_back(x.strides()[dim]);
  }
  if (!valid) {
    Refuse(call, "dims ", ToString(dims), " must name each of the ", x.rank(), " dimensions of x ",
           ToString(x.shape()), " once");
  }
  EmitView(outputs, x, std::move(shape), std::move(strides));
}

void InferExpand(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  const Tensor& x = call.inputs[0];
  const Shape& target = call.attributes.As<ShapeAttributes>().shape;
  NumElements(target, OpName(call));
  EmitView(outputs, x, target, BroadcastStrides(x.shape(), x.strides(), target, OpName(call)));
}

void InferSlice(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  RequireRank(call, 0, 1, INT64_MAX);
  const Tensor& x = call.inputs[0];
  const auto& a = call.attributes.As<SliceAttributes>();
  RequireDim(call, 0, a.dim);
  const int64_t size = x.shape()[a.dim];
  const bool fits =
      a.start >= 0 && a.length >= 0 && a.step >= 1 && a.start <= size &&
      (a.length == 0 || (a.start < size && (size - 1 - a.start) / a.step >= a.length - 1));
  if (!fits) {
    Refuse(call, a.length, " positions from ", a.start, " in steps of ", a.step,
           " do not lie within dimension ", a.dim, " of x ", ToString(x.shape()));
  }
  TensorSpec& spec = EmitView(outputs, x, x.shape(), x.strides());
  spec.shape[a.dim] = a.length;
  if (a.length > 0) spec.offset += a.start * x.strides()[a.dim];
  if (a.length > 1) spec.strides[a.dim] *= a.step;
}

void InferSplit(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  RequireRank(call, 0, 1, INT64_MAX);
  const Tensor& x = call.inputs[0];
  const auto& a = call.attributes.As<SplitAttributes>();
  RequireDim(call, 0, a.dim);
  int64_t rest = x.shape()[a.dim];
  for (const int64_t size : a.sizes) {
    if (size < 0 || size > rest) {
      rest = -1;
      break;
    }
    rest -= size;
  }
  if (rest != 0) {
    Refuse(call, "sizes ", ToString(a.sizes), " must not be negative and must add up to ",
           x.shape()[a.dim], ", the size of dimension ", a.dim, " of x ", ToString(x.shape()));
  }
  int64_t start = 0;
  for (const int64_t size : a.sizes) {
    TensorSpec& spec = EmitView(outputs, x, x.shape(), x.strides());
    spec.shape[a.dim] = size;
    if (size > 0) spec.offset += start * x.strides()[a.dim];
    start += size;
  }
}

void InferDetach(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  EmitView(outputs, call.inputs[0], call.inputs[0].shape(), call.inputs[0].strides());
}

}  // namespace rules
}  // namespace lockstep
