// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/views.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/op_util.h"

namespace lockstep {
namespace {

using ops::RequireDefined;

Tensor MakeView(const Tensor& x, Shape shape) {
  ShapeAttributes attributes;
  attributes.shape = std::move(shape);
  return Dispatch1(OpId::kView, absl::MakeConstSpan(&x, 1), {}, attributes);
}

// For ops that need a dimension to work along.
int64_t ExistingDim(const Tensor& x, int64_t dim, const char* call) {
  RequireDefined(x, call, "x");
  if (x.rank() == 0) ops::Refuse(call, "x is zero-dimensional; View it as [1] first");
  return NormalizeDim(dim, x.rank(), call);
}

Tensor MakeSlice(const Tensor& x, int64_t dim, int64_t start, int64_t length, int64_t step) {
  SliceAttributes attributes;
  attributes.dim = dim;
  attributes.start = start;
  attributes.length = length;
  attributes.step = step;
  return Dispatch1(OpId::kSlice, absl::MakeConstSpan(&x, 1), {}, attributes);
}

std::vector<Tensor> MakeSplit(const Tensor& x, int64_t dim, Shape sizes) {
  SplitAttributes attributes;
  attributes.dim = dim;
  attributes.sizes = std::move(sizes);
  TensorList pieces = Dispatch({OpId::kSplit, absl::MakeConstSpan(&x, 1), Scalars(), attributes});
  return std::vector<Tensor>(std::make_move_iterator(pieces.begin()),
                             std::make_move_iterator(pieces.end()));
}

// Pieces of `size`, the last one of what is left.
Shape EqualSizes(int64_t total, int64_t size) {
  Shape sizes;
  int64_t rest = total;
  for (; rest > size; rest -= size) sizes.push_back(size);
  sizes.push_back(rest);
  return sizes;
}

// A position of Python's slices: from the end when negative, and clamped.
int64_t ClampPosition(int64_t position, int64_t size) {
  if (position < 0) position = position < -size ? 0 : position + size;
  return std::min(position, size);
}

}  // namespace

Tensor View(const Tensor& x, const ShapeArg& shape) {
  RequireDefined(x, "View", "x");
  return MakeView(x, InferReshape(shape.value(), x.numel(), "View"));
}

Tensor Reshape(const Tensor& x, const ShapeArg& shape) {
  RequireDefined(x, "Reshape", "x");
  Shape target = InferReshape(shape.value(), x.numel(), "Reshape");
  const bool viewable = ViewStrides(x.shape(), x.strides(), target).has_value();
  return MakeView(viewable ? x : Clone(x), std::move(target));
}

Tensor Flatten(const Tensor& x, int64_t start, int64_t end) {
  RequireDefined(x, "Flatten", "x");
  const int64_t first = NormalizeDim(start, x.rank(), "Flatten");
  const int64_t last = NormalizeDim(end, x.rank(), "Flatten");
  if (first > last) {
    ops::Refuse("Flatten", "start ", start, " comes after end ", end, " in shape ",
                ToString(x.shape()));
  }
  if (x.rank() == 0) return Reshape(x, {1});
  Shape shape(x.shape().begin(), x.shape().begin() + first);
  shape.push_back(NumElements(ShapeSpan(x.shape()).subspan(first, last - first + 1), "Flatten"));
  shape.insert(shape.end(), x.shape().begin() + last + 1, x.shape().end());
  return Reshape(x, shape);
}

Tensor Unsqueeze(const Tensor& x, int64_t dim) {
  RequireDefined(x, "Unsqueeze", "x");
  const int64_t at = NormalizeDim(dim, x.rank() + 1, "Unsqueeze");
  Shape shape = x.shape();
  shape.insert(shape.begin() + at, 1);
  return MakeView(x, std::move(shape));
}

Tensor Squeeze(const Tensor& x, int64_t dim) {
  const int64_t at = ExistingDim(x, dim, "Squeeze");
  if (x.shape()[at] != 1) {
    ops::Refuse("Squeeze", "dimension ", dim, " of shape ", ToString(x.shape()), " has size ",
                x.shape()[at], "; only a size of 1 can be removed");
  }
  Shape shape = x.shape();
  shape.erase(shape.begin() + at);
  return MakeView(x, std::move(shape));
}

Tensor Permute(const Tensor& x, const ShapeArg& dims) {
  RequireDefined(x, "Permute", "x");
  PermuteAttributes attributes;
  for (const int64_t dim : dims.value()) {
    if (x.rank() == 0) break;
    attributes.dims.push_back(NormalizeDim(dim, x.rank(), "Permute"));
  }
  if (x.rank() == 0) attributes.dims = dims.value();  // the rule says what it thinks of any
  return Dispatch1(OpId::kPermute, absl::MakeConstSpan(&x, 1), {}, attributes);
}

Tensor Transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  RequireDefined(x, "Transpose", "x");
  const int64_t a = NormalizeDim(dim0, x.rank(), "Transpose");
  const int64_t b = NormalizeDim(dim1, x.rank(), "Transpose");
  PermuteAttributes attributes;
  for (int64_t d = 0; d < x.rank(); ++d) {
    attributes.dims.push_back(d == a ? b : d == b ? a : d);
  }
  return Dispatch1(OpId::kPermute, absl::MakeConstSpan(&x, 1), {}, attributes);
}

Tensor Expand(const Tensor& x, const ShapeArg& shape) {
  RequireDefined(x, "Expand", "x");
  ShapeAttributes attributes;
  attributes.shape = shape.value();
  const int64_t added = static_cast<int64_t>(attributes.shape.size()) - x.rank();
  for (int64_t d = 0; d < static_cast<int64_t>(attributes.shape.size()); ++d) {
    if (attributes.shape[d] != -1) continue;
    if (d < added || added < 0) {
      ops::Refuse("Expand", "-1 in shape ", ToString(shape.value()),
                  " keeps a size, but x of shape ", ToString(x.shape()), " has no dimension there");
    }
    attributes.shape[d] = x.shape()[d - added];
  }
  return Dispatch1(OpId::kExpand, absl::MakeConstSpan(&x, 1), {}, attributes);
}

Tensor Slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  const int64_t along = ExistingDim(x, dim, "Slice");
  if (step < 1) ops::Refuse("Slice", "step ", step, " must be at least 1");
  const int64_t size = x.shape()[along];
  const int64_t first = ClampPosition(start, size);
  const int64_t last = ClampPosition(end, size);
  const int64_t length = last > first ? (last - first - 1) / step + 1 : 0;
  return MakeSlice(x, along, first, length, step);
}

Tensor Select(const Tensor& x, int64_t dim, int64_t index) {
  const int64_t along = ExistingDim(x, dim, "Select");
  const int64_t size = x.shape()[along];
  if (index < -size || index >= size) {
    throw OutOfRangeError(absl::StrCat("Select: index ", index, " is not in [", -size, ", ", size,
                                       ") of dimension ", along, " of shape ",
                                       ToString(x.shape())));
  }
  Shape shape = x.shape();
  shape.erase(shape.begin() + along);
  return MakeView(MakeSlice(x, along, index < 0 ? index + size : index, 1, 1), std::move(shape));
}

std::vector<Tensor> Split(const Tensor& x, int64_t size, int64_t dim) {
  const int64_t along = ExistingDim(x, dim, "Split");
  if (size < 1 && !(size == 0 && x.shape()[along] == 0)) {
    ops::Refuse("Split", "size ", size, " of the pieces must be at least 1");
  }
  return MakeSplit(x, along, EqualSizes(x.shape()[along], size));
}

std::vector<Tensor> Split(const Tensor& x, const ShapeArg& sizes, int64_t dim) {
  return MakeSplit(x, ExistingDim(x, dim, "Split"), sizes.value());
}

std::vector<Tensor> Chunk(const Tensor& x, int64_t count, int64_t dim) {
  const int64_t along = ExistingDim(x, dim, "Chunk");
  if (count < 1) ops::Refuse("Chunk", "count ", count, " must be at least 1");
  const int64_t total = x.shape()[along];
  if (total == 0) return MakeSplit(x, along, Shape(count, 0));
  return MakeSplit(x, along, EqualSizes(total, (total - 1) / count + 1));
}

Tensor Detach(const Tensor& x) {
  RequireDefined(x, "Detach", "x");
  return Dispatch1(OpId::kDetach, absl::MakeConstSpan(&x, 1));
}

}  // namespace lockstep
