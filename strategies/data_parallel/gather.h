// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Gather: outputs of several devices, joined on one.
//
//   Tensor y = Gather(pieces, Cpu(0));                       // 3, 2 and 2 rows -> 7
//   TensorTree output = Gather(outputs, Cpu(0));             // trees of one structure
//
// Tensors are concatenated along `dim`. Tensors without dimensions (losses) become a vector with
// one element a piece, also when there is only one piece.
//
// Differentiable: each piece gets its rows of the gradient, on its own device.
#ifndef LOCKSTEP_STRATEGIES_DATA_PARALLEL_GATHER_H_
#define LOCKSTEP_STRATEGIES_DATA_PARALLEL_GATHER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_tree.h"

namespace lockstep::strategies {

// Throws InvalidArgument when there is no piece, an undefined one, or when dtypes, numbers of
// dimensions or sizes other than that of `dim` differ; OutOfRange for `dim`.
Tensor Gather(absl::Span<const Tensor> pieces, Device device, int64_t dim = 0);

// Plain values, and nothing, must be the same in all outputs and come once. Throws InvalidArgument,
// naming the place in the tree and the pieces, when structures or plain values differ.
TensorTree Gather(absl::Span<const TensorTree> outputs, Device device, int64_t dim = 0);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DATA_PARALLEL_GATHER_H_
