// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The vector loops of attention over one block of scores: `rows` query rows x `cols` keys, rows
// `stride` apart. C is float or double. `stride` is a multiple of kScoreAlignment: what lies
// between `cols` and `stride` is scratch.
//
// With `causal`, row i attends to the first first_row - first_col + i + 1 columns of the block only
// (first_row and first_col place the block in the whole matrix); the rest counts as minus infinity.
#ifndef LOCKSTEP_TENSOR_CPU_ATTENTION_ROWS_H_
#define LOCKSTEP_TENSOR_CPU_ATTENTION_ROWS_H_

#include <cstdint>

namespace lockstep::cpu {

inline constexpr int64_t kScoreAlignment = 16;  // lanes of the widest vector

template <typename C>
struct ScoreBlock {
  C* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  int64_t first_row = 0;
  int64_t first_col = 0;
  bool causal = false;
};

// Scores into softmax(scale * scores) row by row, and log_sum_exp[i] of the row. A row of minus
// infinities (it attends to nothing) becomes zeros with log_sum_exp minus infinity.
template <typename C>
void AttentionSoftmax(const ScoreBlock<C>& block, double scale, C* log_sum_exp);

// Scores into the same probabilities again, exp(scale * score - log_sum_exp[i]).
template <typename C>
void AttentionProbabilities(const ScoreBlock<C>& block, double scale, const C* log_sum_exp);

// `block` holds the gradients of the probabilities and gets those of the scores:
// p * (dp - delta[i]) * scale. `p` has the block's layout.
template <typename C>
void AttentionScoreGradients(const ScoreBlock<C>& block, const C* p, const C* delta, double scale);

// out[i] = a[i] * b[i]; out may be a.
template <typename C>
void AttentionMultiply(int64_t count, const C* a, const C* b, C* out);

// Sum of a[i] * b[i].
template <typename C>
C AttentionDot(int64_t count, const C* a, const C* b);

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_ATTENTION_ROWS_H_
