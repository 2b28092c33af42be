// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Views: the same elements in another shape or order. Nothing is copied unless said; writing to a
// view writes to its source. Throws InvalidArgument or OutOfRange.
#ifndef LOCKSTEP_TENSOR_OPS_VIEWS_H_
#define LOCKSTEP_TENSOR_OPS_VIEWS_H_

#include <vector>

#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// A view in `shape` (one size may be -1). Throws when the strides need a copy: use Reshape.
Tensor View(const Tensor& x, const ShapeArg& shape);
// A view where possible, else a copy.
Tensor Reshape(const Tensor& x, const ShapeArg& shape);
// Dimensions start..end joined into one.
Tensor Flatten(const Tensor& x, int64_t start = 0, int64_t end = -1);
// A size of 1 inserted before `dim` (after the last for -1), or removed (throws unless it is 1).
Tensor Unsqueeze(const Tensor& x, int64_t dim);
Tensor Squeeze(const Tensor& x, int64_t dim);

Tensor Permute(const Tensor& x, const ShapeArg& dims);
Tensor Transpose(const Tensor& x, int64_t dim0, int64_t dim1);
// Sizes of 1 stretched to `shape`; -1 keeps a size.
Tensor Expand(const Tensor& x, const ShapeArg& shape);

// x[start:end:step] along `dim`; negative positions count from the end, and both are clamped, as in
// Python. step >= 1.
Tensor Slice(const Tensor& x, int64_t dim, int64_t start, int64_t end = INT64_MAX,
             int64_t step = 1);
// x[index] along `dim`, which disappears. Throws OutOfRange.
Tensor Select(const Tensor& x, int64_t dim, int64_t index);
// Consecutive pieces of `size` (the last may be smaller), or of the given sizes (which must add
// up).
std::vector<Tensor> Split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> Split(const Tensor& x, const ShapeArg& sizes, int64_t dim);
// `count` pieces, as equal as torch.chunk makes them.
std::vector<Tensor> Chunk(const Tensor& x, int64_t count, int64_t dim = 0);

// The same elements outside the graph of gradients.
Tensor Detach(const Tensor& x);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OPS_VIEWS_H_
