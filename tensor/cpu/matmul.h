// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Batched matrix products over strided operands: what MatMul, Linear and gradients run on. Chooses
// the implementation (contraction_table.h), folds a batch into the rows where the operands allow,
// and divides the work over threads.
//
//   MatMulCall call;
//   call.dtype = DType::kFloat32;
//   call.batch = {2, 3};                          // C is [2, 3, m, n], row-major
//   call.m = m; call.n = n; call.k = k;
//   call.a = {a_data, {3 * m * k, m * k}, k, 1};
//   call.b = {b_data, {0, 0}, 1, k};              // one matrix, stored [n, k], for all
//   call.c = c_data;
//   RunMatMul(context, call);
#ifndef LOCKSTEP_TENSOR_CPU_MATMUL_H_
#define LOCKSTEP_TENSOR_CPU_MATMUL_H_

#include <cstdint>

#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/kernel.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::cpu {

// Matrices by strides in elements, any of which may be 0; `batch_strides` has one for each
// dimension of MatMulCall::batch.
struct MatMulOperand {
  const void* data = nullptr;
  Strides batch_strides;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
};

// C = A * B + bias for every index of `batch`. All operands have `dtype`; 16-bit floats accumulate
// in float32 and are rounded once.
struct MatMulCall {
  DType dtype = DType::kFloat32;
  Shape batch;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;  // 0 gives bias, or zeros
  MatMulOperand a;
  MatMulOperand b;
  void* c = nullptr;           // [batch..., m, n] row-major; overlaps no operand
  const void* bias = nullptr;  // [n] contiguous, or null
};

// Not from inside a parallel region. Throws Unimplemented for uint8 and bool.
void RunMatMul(KernelContext& context, MatMulCall call);

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_MATMUL_H_
