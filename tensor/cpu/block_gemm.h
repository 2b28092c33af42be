// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Matrix product of one block on the calling thread, by a packed micro-kernel of our own (Highway):
// for what oneDNN does not have (float64, integers, 16-bit floats on processors without AVX-512)
// and where it is faster than oneDNN (contraction_table.h says where). Any strides; nothing is
// transposed in memory beyond the packed panels.
//
//   std::vector<float> scratch(BlockGemmWorkspace<float>(m, n, k));
//   BlockGemmCall<float> call;
//   call.m = m; call.n = n; call.k = k;
//   call.a = a; call.a_row_stride = k; call.a_col_stride = 1;
//   call.b = b; call.b_row_stride = 1; call.b_col_stride = k;   // b is stored [n, k]
//   call.c = c; call.c_row_stride = n;
//   call.workspace = scratch.data();
//   BlockGemm(call);
//
// An element of C is one chain of multiply-adds in the order of k (cut at fixed borders that depend
// on k only), whatever m, n and the position of the element: splitting C over threads changes no
// bit.
#ifndef LOCKSTEP_TENSOR_CPU_BLOCK_GEMM_H_
#define LOCKSTEP_TENSOR_CPU_BLOCK_GEMM_H_

#include <cstdint>
#include <type_traits>

#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {

// What products of T are accumulated in: float for the 16-bit floats, else T itself.
template <typename T>
using GemmAccumulator =
    std::conditional_t<std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>, float, T>;

// C[m, n] = A[m, k] * B[k, n] + (accumulate ? C : bias). Strides are in elements and may be 0 or
// negative for A and B; the columns of C are adjacent. C must not overlap A or B.
template <typename T>
struct BlockGemmCall {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;  // 0 gives bias, or zeros
  const T* a = nullptr;
  int64_t a_row_stride = 0;
  int64_t a_col_stride = 1;
  const T* b = nullptr;
  int64_t b_row_stride = 0;
  int64_t b_col_stride = 1;
  GemmAccumulator<T>* c = nullptr;
  int64_t c_row_stride = 0;
  const GemmAccumulator<T>* bias = nullptr;  // [n], or null for none; not with `accumulate`
  bool accumulate = false;
  GemmAccumulator<T>* workspace = nullptr;  // BlockGemmWorkspace<T>(m, n, k) elements
};

// Elements of scratch that BlockGemm needs; at most 1.1 MB of float32, whatever the sizes.
template <typename T>
int64_t BlockGemmWorkspace(int64_t m, int64_t n, int64_t k);

// T: float, double, bfloat16, float16, int64_t, int32_t (integers wrap around).
template <typename T>
void BlockGemm(const BlockGemmCall<T>& call);

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_BLOCK_GEMM_H_
