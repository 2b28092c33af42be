// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Reductions over dimensions. Empty `dims` means all. Dimensions may be negative; repeats and
// out-of-range ones throw. `keepdim` leaves sizes of 1. float16 and bfloat16 accumulate in float32.
#ifndef LOCKSTEP_TENSOR_OPS_REDUCTION_H_
#define LOCKSTEP_TENSOR_OPS_REDUCTION_H_

#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// Integers and bool give int64. Over nothing: 0.
Tensor Sum(const Tensor& x, const ShapeArg& dims = Shape(), bool keepdim = false);
// Floating point only (throws InvalidArgument otherwise). Over nothing: NaN.
Tensor Mean(const Tensor& x, const ShapeArg& dims = Shape(), bool keepdim = false);
// torch.amax / amin: NaN wins; equal elements share the gradient. Throws InvalidArgument over
// nothing.
Tensor Max(const Tensor& x, const ShapeArg& dims = Shape(), bool keepdim = false);
Tensor Min(const Tensor& x, const ShapeArg& dims = Shape(), bool keepdim = false);
// int64 index of the first largest (smallest) element along `dim`; NaN counts as such.
Tensor ArgMax(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor ArgMin(const Tensor& x, int64_t dim, bool keepdim = false);
// bool.
Tensor All(const Tensor& x, const ShapeArg& dims = Shape(), bool keepdim = false);
Tensor Any(const Tensor& x, const ShapeArg& dims = Shape(), bool keepdim = false);

// Sums `x` over the dimensions that broadcasting stretched, giving `shape`. For gradients.
Tensor SumTo(const Tensor& x, ShapeSpan shape);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OPS_REDUCTION_H_
