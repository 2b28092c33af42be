// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Gathering, scattering and joining. Indices are int64 or int32 tensors on the same device; an
// index out of range throws OutOfRange from the kernel with its position and the allowed range.
#ifndef LOCKSTEP_TENSOR_OPS_INDEXING_H_
#define LOCKSTEP_TENSOR_OPS_INDEXING_H_

#include "lockstep/tensor/tensor.h"

namespace lockstep {

// weight [V, C], indices [...] -> [..., C].
Tensor Embedding(const Tensor& weight, const Tensor& indices);

// y has index's shape: y[i][j] = x[index[i][j]][j] for dim 0. index's other sizes must not exceed
// x's.
Tensor Gather(const Tensor& x, int64_t dim, const Tensor& index);
// A copy of x, plus source at index (the reverse of Gather). Sums in index order.
Tensor ScatterAdd(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);

// Slices of x at index [N] along `dim`.
Tensor IndexSelect(const Tensor& x, int64_t dim, const Tensor& index);
// A copy of x, plus slices of source at index [N].
Tensor IndexAdd(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);

// Joined along an existing (Concat) or a new (Stack) dimension; dtypes are promoted.
Tensor Concat(TensorSpan tensors, int64_t dim = 0);
Tensor Stack(TensorSpan tensors, int64_t dim = 0);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OPS_INDEXING_H_
