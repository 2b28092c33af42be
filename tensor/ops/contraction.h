// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Matrix products. Operands must have one dtype (autocast or To() makes it so); float16 and
// bfloat16 accumulate in float32. Throws InvalidArgument naming both shapes.
#ifndef LOCKSTEP_TENSOR_OPS_CONTRACTION_H_
#define LOCKSTEP_TENSOR_OPS_CONTRACTION_H_

#include "lockstep/tensor/tensor.h"

namespace lockstep {

struct MatMulOptions {
  bool transpose_a = false;  // use the last two dimensions of `a` swapped; nothing is copied
  bool transpose_b = false;
};
// [..., M, K] x [..., K, N] -> [..., M, N]; leading dimensions broadcast. One-dimensional operands
// as in torch.matmul: [K] x [K] -> [], [M, K] x [K] -> [M], [K] x [K, N] -> [N].
Tensor MatMul(const Tensor& a, const Tensor& b, const MatMulOptions& options = {});

// x [..., I], weight [O, I], bias [O] or undefined -> [..., O].
Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OPS_CONTRACTION_H_
