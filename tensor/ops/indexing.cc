// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/indexing.h"

#include <vector>

#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/op_util.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep {
namespace {

using ops::RequireDefined;

Tensor AlongDim(OpId op, const char* call, int64_t dim, TensorSpan inputs) {
  DimAttributes attributes;
  attributes.dim = NormalizeDim(dim, inputs[0].rank(), call);
  return Dispatch1(op, inputs, {}, attributes);
}

void RequireSome(TensorSpan tensors, const char* call) {
  if (tensors.empty()) {
    ops::Refuse(call, "no tensors are given; the dtype and shape would be unknown");
  }
  RequireDefined(tensors, call, "tensors");
}

}  // namespace

Tensor Embedding(const Tensor& weight, const Tensor& indices) {
  RequireDefined(weight, "Embedding", "weight");
  RequireDefined(indices, "Embedding", "indices");
  const Tensor inputs[] = {weight, indices};
  return Dispatch1(OpId::kEmbedding, inputs);
}

Tensor Gather(const Tensor& x, int64_t dim, const Tensor& index) {
  RequireDefined(x, "Gather", "x");
  RequireDefined(index, "Gather", "index");
  const Tensor inputs[] = {x, index};
  return AlongDim(OpId::kGather, "Gather", dim, inputs);
}

Tensor ScatterAdd(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  RequireDefined(x, "ScatterAdd", "x");
  RequireDefined(index, "ScatterAdd", "index");
  RequireDefined(source, "ScatterAdd", "source");
  const Tensor inputs[] = {x, index, source};
  return AlongDim(OpId::kScatterAdd, "ScatterAdd", dim, inputs);
}

Tensor IndexSelect(const Tensor& x, int64_t dim, const Tensor& index) {
  RequireDefined(x, "IndexSelect", "x");
  RequireDefined(index, "IndexSelect", "index");
  const Tensor inputs[] = {x, index};
  return AlongDim(OpId::kIndexSelect, "IndexSelect", dim, inputs);
}

Tensor IndexAdd(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  RequireDefined(x, "IndexAdd", "x");
  RequireDefined(index, "IndexAdd", "index");
  RequireDefined(source, "IndexAdd", "source");
  const Tensor inputs[] = {x, index, source};
  return AlongDim(OpId::kIndexAdd, "IndexAdd", dim, inputs);
}

Tensor Concat(TensorSpan tensors, int64_t dim) {
  RequireSome(tensors, "Concat");
  DType dtype = tensors[0].dtype();
  for (const Tensor& tensor : tensors) dtype = PromoteTypes(dtype, tensor.dtype());
  std::vector<Tensor> inputs;
  inputs.reserve(tensors.size());
  for (const Tensor& tensor : tensors) inputs.push_back(ops::CastTo(tensor, dtype));
  return AlongDim(OpId::kConcat, "Concat", dim, inputs);
}

Tensor Stack(TensorSpan tensors, int64_t dim) {
  RequireSome(tensors, "Stack");
  const int64_t at = NormalizeDim(dim, tensors[0].rank() + 1, "Stack");
  std::vector<Tensor> inputs;
  inputs.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].shape() != tensors[0].shape()) {
      ops::Refuse("Stack", "tensors[", i, "] has shape ", ToString(tensors[i].shape()),
                  " and tensors[0] has ", ToString(tensors[0].shape()), "; they must be the same");
    }
    inputs.push_back(Unsqueeze(tensors[i], at));
  }
  return Concat(inputs, at);
}

}  // namespace lockstep
