// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Attention of one head over one block of query rows (Dao et al. 2022): the pieces that
// attention.cc spreads over threads. A worker holds at most kQueryBlock rows x keys of scores,
// twice in the backward pass (three times with dropout), so that memory grows linearly in T and in
// S.
//
// All products run on BlockGemm on the worker's thread. Measured on a Zen 3 at T = S = 64, D = 32,
// the blocks of a small GPT: scores (NT) 3.1 us with BlockGemm, 3.2 us with dnnl::sgemm, 4.9 us
// with a oneDNN primitive; p * v (NN) 2.9, 3.0 and 4.8 us; the transposed products of the backward
// pass (TN) 3.4, 2.9 and 4.9 us.
#ifndef LOCKSTEP_TENSOR_CPU_ATTENTION_BLOCK_H_
#define LOCKSTEP_TENSOR_CPU_ATTENTION_BLOCK_H_

#include <cstdint>

#include "lockstep/tensor/cpu/block_gemm.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::cpu {

inline constexpr int64_t kQueryBlock = 64;

// [lead..., rows, cols] by strides in elements.
struct HeadMatrices {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  Strides lead_strides;
  int64_t row_stride = 0;
  int64_t col_stride = 0;
};

// One call of attention or of its gradient. `heads` is the product of `lead`.
struct AttentionCall {
  Shape lead;
  int64_t heads = 0;
  int64_t t = 0;  // query rows
  int64_t s = 0;  // keys
  int64_t d = 0;  // features of q and k
  int64_t e = 0;  // features of v
  HeadMatrices q, k, v, y;
  HeadMatrices grad, dq, dk, dv;  // backward; the columns of y, dq, dk and dv are adjacent
  HeadMatrices mask;              // bool, or q's dtype; data null for none
  void* log_sum_exp = nullptr;    // [heads, t] of the compute type
  bool causal = false;
  double scale = 1;
  double dropout_p = 0;
  RandomKey key;
};

// T is the dtype of q. Not thread-safe: one worker a thread, over the same call.
template <typename T>
class AttentionWorker {
 public:
  using C = GemmAccumulator<T>;

  // Elements of scratch for one worker. `keys`: the most keys that one call of Backward covers.
  static int64_t ForwardScratch(const AttentionCall& call);
  static int64_t BackwardScratch(const AttentionCall& call, int64_t keys);

  AttentionWorker(const AttentionCall& call, C* scratch) : call_(call), next_(scratch) {}

  // Rows first_row.. of y and log_sum_exp of one head.
  void Forward(int64_t head, int64_t first_row);

  // Gradients of one head. Query rows in blocks, in order; keys first_key.. (`keys` of them).
  // dq is written only by calls that cover all keys.
  struct BackwardPart {
    int64_t head;
    int64_t first_row, rows;  // query rows: all of them for dk and dv
    int64_t first_key, keys;
    bool want_dq, want_dkv;
  };
  void Backward(const BackwardPart& part);

 private:
  struct View {
    const C* data;
    int64_t row_stride, col_stride;
  };
  struct Block {
    int64_t head, first_row, rows, first_key, keys;
  };

  C* Take(int64_t count);
  View Load(const HeadMatrices& matrices, int64_t head, int64_t first_row, int64_t rows,
            int64_t cols, C* buffer) const;
  void Multiply(const View& a, const View& b, int64_t m, int64_t n, int64_t k, C* c, int64_t stride,
                bool accumulate);
  // Scores of the block; returns the scale that they still need.
  double Scores(const Block& block, const View& q, const View& k, C* scores);
  template <typename M>
  void AddMask(const Block& block, C* scores) const;
  // 0 or 1 / (1 - p) for each element of the block.
  void DropoutFactors(const Block& block, C* factors);
  void BackwardBlock(const BackwardPart& part, const Block& block, const View& k, const View& v,
                     C* dk, int64_t dk_stride, C* dv, int64_t dv_stride);
  // Where rows of an output are accumulated: the output itself when it has the compute type.
  C* OutputRows(const HeadMatrices& matrices, int64_t head, int64_t first_row, int64_t cols,
                C* buffer, int64_t* stride) const;
  void StoreRows(const HeadMatrices& matrices, int64_t head, int64_t first_row, int64_t rows,
                 int64_t cols, const C* buffer) const;

  const AttentionCall& call_;
  C* next_;
};

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_ATTENTION_BLOCK_H_
