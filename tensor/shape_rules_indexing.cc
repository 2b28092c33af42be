// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Rules of gathering, scattering and joining.

#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/shape_rules_util.h"

namespace lockstep {
namespace rules {
namespace {

// Input 1 is an index into input 0 along the attribute's dimension, as Gather takes it.
int64_t RequireGatherIndex(const OpCall& call) {
  RequireIndices(call, 1);
  const int64_t dim = call.attributes.As<DimAttributes>().dim;
  RequireDim(call, 0, dim);
  const Shape& x = call.inputs[0].shape();
  const Shape& index = call.inputs[1].shape();
  bool fits = x.size() == index.size();
  for (size_t d = 0; fits && d < x.size(); ++d) {
    fits = static_cast<int64_t>(d) == dim || index[d] <= x[d];
  }
  if (!fits) {
    Refuse(call, "index ", ToString(index), " does not fit x ", ToString(x),
           "; their ranks must be equal, and no size of index but that of dimension ", dim,
           " may be larger");
  }
  return dim;
}

// Input 1 is a list of positions along the attribute's dimension of input 0.
int64_t RequireSliceIndex(const OpCall& call) {
  RequireRank(call, 0, 1, INT64_MAX);
  RequireIndices(call, 1);
  RequireRank(call, 1, 1, 1);
  const int64_t dim = call.attributes.As<DimAttributes>().dim;
  RequireDim(call, 0, dim);
  return dim;
}

}  // namespace

void InferEmbedding(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 2);
  RequireRank(call, 0, 2, 2);
  RequireIndices(call, 1);
  Shape result(call.inputs[1].shape());
  result.push_back(call.inputs[0].shape()[1]);
  Emit(call, outputs, result, call.inputs[0].dtype());
}

void InferEmbeddingBackward(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 2);
  RequireFloat(call, 0);
  RequireIndices(call, 1);
  RequireRank(call, 0, 1, INT64_MAX);
  const int64_t rows = call.attributes.As<EmbeddingBackwardAttributes>().rows;
  if (rows < 0) Refuse(call, "rows is ", rows, "; it must not be negative");
  const Shape& grad = call.inputs[0].shape();
  Shape expected(call.inputs[1].shape());
  expected.push_back(grad.back());
  RequireShape(call, 0, expected, "indices with one dimension more");
  Emit(call, outputs, {rows, grad.back()}, call.inputs[0].dtype());
}

void InferGather(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 2);
  RequireGatherIndex(call);
  Emit(call, outputs, call.inputs[1].shape(), call.inputs[0].dtype());
}

void InferScatterAdd(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 3);
  RequireNumber(call, 0);
  RequireSameDType(call, 0, 2);
  RequireGatherIndex(call);
  RequireSameShape(call, 1, 2);
  Emit(call, outputs, call.inputs[0].shape(), call.inputs[0].dtype());
}

void InferIndexSelect(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 2);
  const int64_t dim = RequireSliceIndex(call);
  Shape result(call.inputs[0].shape());
  result[dim] = call.inputs[1].shape()[0];
  Emit(call, outputs, result, call.inputs[0].dtype());
}

void InferIndexAdd(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 3);
  RequireNumber(call, 0);
  RequireSameDType(call, 0, 2);
  const int64_t dim = RequireSliceIndex(call);
  Shape slices(call.inputs[0].shape());
  slices[dim] = call.inputs[1].shape()[0];
  RequireShape(call, 2, slices, "x with one slice for each index");
  Emit(call, outputs, call.inputs[0].shape(), call.inputs[0].dtype());
}

void InferConcat(const OpCall& call, SpecList& outputs) {
  const size_t count = RequireLists(call, 1, 0, 0);
  if (count == 0) Refuse(call, "no tensors are given; the dtype and shape would be unknown");
  const int64_t dim = call.attributes.As<DimAttributes>().dim;
  RequireRank(call, 0, 1, INT64_MAX);
  RequireDim(call, 0, dim);
  Shape result(call.inputs[0].shape());
  for (size_t i = 1; i < count; ++i) {
    RequireSameDType(call, 0, i);
    const Shape& shape = call.inputs[i].shape();
    bool fits = shape.size() == result.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      fits = static_cast<int64_t>(d) == dim || shape[d] == result[d];
    }
    if (!fits) {
      Refuse(call, InputName(call, i), " has shape ", ToString(shape), " and x[0] has ",
             ToString(call.inputs[0].shape()), "; they must be equal but in dimension ", dim);
    }
    if (__builtin_add_overflow(result[dim], shape[dim], &result[dim])) {
      Refuse(call, "the sizes along dimension ", dim, " add up to more than an int64");
    }
  }
  NumElements(result, OpName(call));
  Emit(call, outputs, result, call.inputs[0].dtype());
}

void InferSliceBackward(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  RequireRank(call, 0, 1, INT64_MAX);
  const auto& a = call.attributes.As<SliceBackwardAttributes>();
  RequireDim(call, 0, a.dim);
  Shape result(call.inputs[0].shape());
  const int64_t length = result[a.dim];
  const bool fits =
      a.start >= 0 && a.step >= 1 && a.size >= 0 && a.start <= a.size &&
      (length == 0 || (a.start < a.size && (a.size - 1 - a.start) / a.step >= length - 1));
  if (!fits) {
    Refuse(call, length, " slices of grad ", ToString(result), " from ", a.start, " in steps of ",
           a.step, " do not fit into size ", a.size);
  }
  result[a.dim] = a.size;
  Emit(call, outputs, result, call.inputs[0].dtype());
}

}  // namespace rules
}  // namespace lockstep
