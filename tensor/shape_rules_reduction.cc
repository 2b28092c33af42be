// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Rules of reductions over dimensions.

#include <algorithm>

#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/shape_rules_util.h"

namespace lockstep {
namespace rules {
namespace {

// `dims` is ascending without repeats.
Shape ReducedShape(ShapeSpan shape, ShapeSpan dims, bool keepdim) {
  Shape result;
  size_t next = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool reduced = next < dims.size() && dims[next] == static_cast<int64_t>(d);
    if (reduced) ++next;
    if (!reduced) {
      result.push_back(shape[d]);
    } else if (keepdim) {
      result.push_back(1);
    }
  }
  return result;
}

void Reduce(const OpCall& call, SpecList& outputs, DType dtype) {
  const auto& attributes = call.attributes.As<ReduceAttributes>();
  const Tensor& x = call.inputs[0];
  int64_t previous = -1;
  for (const int64_t dim : attributes.dims) {
    if (dim <= previous || dim >= x.rank()) {
      Refuse(call, "dims ", ToString(attributes.dims), " must ascend from 0 to below ", x.rank(),
             ", the rank of x of shape ", ToString(x.shape()));
    }
    previous = dim;
  }
  Emit(call, outputs, ReducedShape(x.shape(), attributes.dims, attributes.keepdim), dtype);
}

// There is no largest or smallest of nothing.
void RequireElements(const OpCall& call, ShapeSpan dims) {
  for (const int64_t dim : dims) {
    if (call.inputs[0].shape()[dim] == 0) {
      Refuse(call, "dimension ", dim, " of x of shape ", ToString(call.inputs[0].shape()),
             " has no elements to choose from; skip the call for empty tensors");
    }
  }
}

void ReduceExtremum(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  Reduce(call, outputs, call.inputs[0].dtype());
  RequireElements(call, call.attributes.As<ReduceAttributes>().dims);
}

void ReduceToBool(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  Reduce(call, outputs, DType::kBool);
}

void ArgReduce(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  RequireNumber(call, 0);
  const auto& attributes = call.attributes.As<ArgReduceAttributes>();
  RequireDim(call, 0, attributes.dim);
  const Shape& shape = call.inputs[0].shape();
  if (shape.empty()) {
    Emit(call, outputs, shape, DType::kInt64);
    return;
  }
  RequireElements(call, {attributes.dim});
  Emit(call, outputs, ReducedShape(shape, {attributes.dim}, attributes.keepdim), DType::kInt64);
}

}  // namespace

void InferSum(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  const DType dtype = call.inputs[0].dtype();
  Reduce(call, outputs, IsFloatingPoint(dtype) ? dtype : DType::kInt64);
}

void InferMean(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  RequireFloat(call, 0);
  Reduce(call, outputs, call.inputs[0].dtype());
}

void InferMax(const OpCall& call, SpecList& outputs) { ReduceExtremum(call, outputs); }
void InferMin(const OpCall& call, SpecList& outputs) { ReduceExtremum(call, outputs); }
void InferArgMax(const OpCall& call, SpecList& outputs) { ArgReduce(call, outputs); }
void InferArgMin(const OpCall& call, SpecList& outputs) { ArgReduce(call, outputs); }
void InferAll(const OpCall& call, SpecList& outputs) { ReduceToBool(call, outputs); }
void InferAny(const OpCall& call, SpecList& outputs) { ReduceToBool(call, outputs); }

}  // namespace rules
}  // namespace lockstep
