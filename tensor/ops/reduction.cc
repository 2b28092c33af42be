// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/reduction.h"

#include <algorithm>
#include <numeric>

#include "absl/types/span.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/op_util.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep {
namespace {

// Normalised, ascending; all dimensions for an empty list.
Shape ReducedDims(const Tensor& x, ShapeSpan dims, const char* call) {
  Shape result;
  if (dims.empty()) {
    result.resize(x.rank());
    std::iota(result.begin(), result.end(), 0);
    return result;
  }
  for (const int64_t dim : dims) result.push_back(NormalizeDim(dim, x.rank(), call));
  std::sort(result.begin(), result.end());
  const auto repeat = std::adjacent_find(result.begin(), result.end());
  if (repeat != result.end()) {
    ops::Refuse(call, "dimension ", *repeat, " is given twice in dims ", ToString(dims));
  }
  if (x.rank() == 0) result.clear();  // the one dimension that a number is taken to have
  return result;
}

Tensor Reduce(OpId op, const char* call, const Tensor& x, const ShapeArg& dims, bool keepdim) {
  ops::RequireDefined(x, call, "x");
  ReduceAttributes attributes;
  attributes.dims = ReducedDims(x, dims.value(), call);
  attributes.keepdim = keepdim;
  return Dispatch1(op, absl::MakeConstSpan(&x, 1), {}, attributes);
}

Tensor ArgReduce(OpId op, const char* call, const Tensor& x, int64_t dim, bool keepdim) {
  ops::RequireDefined(x, call, "x");
  ArgReduceAttributes attributes;
  attributes.dim = NormalizeDim(dim, x.rank(), call);
  attributes.keepdim = keepdim;
  return Dispatch1(op, absl::MakeConstSpan(&x, 1), {}, attributes);
}

}  // namespace

Tensor Sum(const Tensor& x, const ShapeArg& dims, bool keepdim) {
  return Reduce(OpId::kSum, "Sum", x, dims, keepdim);
}
Tensor Mean(const Tensor& x, const ShapeArg& dims, bool keepdim) {
  return Reduce(OpId::kMean, "Mean", x, dims, keepdim);
}
Tensor Max(const Tensor& x, const ShapeArg& dims, bool keepdim) {
  return Reduce(OpId::kMax, "Max", x, dims, keepdim);
}
Tensor Min(const Tensor& x, const ShapeArg& dims, bool keepdim) {
  return Reduce(OpId::kMin, "Min", x, dims, keepdim);
}
Tensor ArgMax(const Tensor& x, int64_t dim, bool keepdim) {
  return ArgReduce(OpId::kArgMax, "ArgMax", x, dim, keepdim);
}
Tensor ArgMin(const Tensor& x, int64_t dim, bool keepdim) {
  return ArgReduce(OpId::kArgMin, "ArgMin", x, dim, keepdim);
}
Tensor All(const Tensor& x, const ShapeArg& dims, bool keepdim) {
  return Reduce(OpId::kAll, "All", x, dims, keepdim);
}
Tensor Any(const Tensor& x, const ShapeArg& dims, bool keepdim) {
  return Reduce(OpId::kAny, "Any", x, dims, keepdim);
}

Tensor SumTo(const Tensor& x, ShapeSpan shape) {
  ops::RequireDefined(x, "SumTo", "x");
  if (ShapeSpan(x.shape()) == shape) return x;
  bool fits = static_cast<int64_t>(shape.size()) <= x.rank();
  const size_t added = fits ? x.shape().size() - shape.size() : 0;
  Shape dims;
  for (size_t d = 0; fits && d < x.shape().size(); ++d) {
    if (d < added || (shape[d - added] == 1 && x.shape()[d] != 1)) {
      dims.push_back(static_cast<int64_t>(d));
    } else {
      fits = shape[d - added] == x.shape()[d];
    }
  }
  if (!fits) {
    ops::Refuse("SumTo", "shape ", ToString(shape), " does not broadcast to x of shape ",
                ToString(x.shape()));
  }
  Tensor sum = Sum(x, dims, /*keepdim=*/true);
  return added == 0 ? sum : View(sum, shape);
}

}  // namespace lockstep
