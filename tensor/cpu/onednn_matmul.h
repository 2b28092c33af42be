// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Matrix products by oneDNN's matmul primitive, which is made once per shape and kept.
//
// A primitive's code fits one combination of sizes, dtype, strides and thread count; making one
// costs 20 us to several ms. The 512 used last are kept for the process, whatever thread made them.
#ifndef LOCKSTEP_TENSOR_CPU_ONEDNN_MATMUL_H_
#define LOCKSTEP_TENSOR_CPU_ONEDNN_MATMUL_H_

#include <cstdint>
#include <memory>

#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/kernel.h"

namespace lockstep::cpu {

// One operand in one of the two orders that oneDNN takes without a copy.
struct OneDnnOperand {
  bool transposed = false;        // columns are contiguous instead of rows
  int64_t leading_dimension = 0;  // elements from one row (column) to the next
  friend bool operator==(const OneDnnOperand&, const OneDnnOperand&) = default;
};

// Fills `operand` when a rows x cols matrix with these strides needs no copy; else returns false.
bool AsOneDnnOperand(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                     OneDnnOperand* operand);

// C[m, n] = A[m, k] * B[k, n] + bias. dtype is float32 or bfloat16 (accumulated in float32) and
// that of all operands. Rows of C are contiguous and `c_row_stride` apart.
struct OneDnnMatMul {
  DType dtype = DType::kFloat32;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;  // at least 1, as m and n
  OneDnnOperand a;
  OneDnnOperand b;
  int64_t c_row_stride = 0;
  bool has_bias = false;
  friend bool operator==(const OneDnnMatMul&, const OneDnnMatMul&) = default;
};

// A primitive with its scratch, for one or more products of one kind during a kernel call.
class OneDnnMatMulRunner {
 public:
  // Finds or makes the primitive for context.thread_count() threads; scratch is the context's.
  // Throws Internal with oneDNN's message when it refuses the combination.
  OneDnnMatMulRunner(KernelContext& context, const OneDnnMatMul& problem);
  // `bias` is ignored without problem.has_bias.
  void Run(const void* a, const void* b, const void* bias, void* c) const;

 private:
  struct Primitive;
  class Cache;
  struct Library;
  friend int64_t OneDnnMatMulCacheSize();

  std::shared_ptr<const Primitive> primitive_;
  void* scratch_ = nullptr;
  int threads_ = 1;
};

// One product.
inline void RunOneDnnMatMul(KernelContext& context, const OneDnnMatMul& problem, const void* a,
                            const void* b, const void* bias, void* c) {
  OneDnnMatMulRunner(context, problem).Run(a, b, bias, c);
}

// Primitives kept now, for tests.
int64_t OneDnnMatMulCacheSize();
inline constexpr int64_t kOneDnnMatMulCacheCapacity = 512;

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_ONEDNN_MATMUL_H_
