// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/cpu/attention_block.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lockstep/base/rounding.h"
#include "lockstep/tensor/cpu/attention_rows.h"
#include "lockstep/tensor/cpu/convert.h"
#include "lockstep/tensor/cpu/random_words.h"

namespace lockstep::cpu {
namespace {

// Buffers start on cache lines.
template <typename C>
int64_t Rounded(int64_t count) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(C));
  return RoundUp(count, kLine);
}

// Columns of a block of scores in memory.
int64_t ScoreStride(int64_t keys) { return RoundUp(keys, kScoreAlignment); }

int64_t HeadOffset(const AttentionCall& call, const HeadMatrices& matrices, int64_t head) {
  int64_t offset = 0;
  for (int64_t d = static_cast<int64_t>(call.lead.size()) - 1; d >= 0; --d) {
    offset += head % call.lead[d] * matrices.lead_strides[d];
    head /= call.lead[d];
  }
  return offset;
}

template <typename T>
T* RowPointer(const AttentionCall& call, const HeadMatrices& matrices, int64_t head, int64_t row) {
  return static_cast<T*>(matrices.data) + HeadOffset(call, matrices, head) +
         row * matrices.row_stride;
}

// The largest workspace of the products of a block.
template <typename C>
int64_t ProductWorkspace(const AttentionCall& call, int64_t keys) {
  const int64_t rows = std::min(kQueryBlock, call.t);
  return std::max({BlockGemmWorkspace<C>(rows, keys, std::max(call.d, call.e)),
                   BlockGemmWorkspace<C>(rows, std::max(call.d, call.e), keys),
                   BlockGemmWorkspace<C>(keys, std::max(call.d, call.e), rows)});
}

// `count` elements `step` apart as neighbours: where they are, or in `buffer` (which may be
// `data`).
template <typename C>
const C* Adjacent(const C* data, int64_t step, int64_t count, C* buffer) {
  if (step == 1) return data;
  for (int64_t i = 0; i < count; ++i) buffer[i] = data[i * step];
  return buffer;
}

// 16-bit floats to the compute type and back.
void ConvertRows(const bfloat16* in, const RowLayout& layout, float* out) {
  BFloat16ToFloat(in, layout, out);
}
void ConvertRows(const float16* in, const RowLayout& layout, float* out) {
  Float16ToFloat(in, layout, out);
}
void ConvertRows(const float* in, const RowLayout& layout, bfloat16* out) {
  FloatToBFloat16(in, layout, out);
}
void ConvertRows(const float* in, const RowLayout& layout, float16* out) {
  FloatToFloat16(in, layout, out);
}

// Room for the words of one row of dropout, in elements of C.
template <typename C>
int64_t WordRow(int64_t keys) {
  return keys * static_cast<int64_t>(sizeof(uint32_t)) / static_cast<int64_t>(sizeof(C)) + 1;
}

}  // namespace

template <typename T>
int64_t AttentionWorker<T>::ForwardScratch(const AttentionCall& call) {
  const int64_t rows = std::min(kQueryBlock, call.t);
  int64_t total =
      Rounded<C>(rows * ScoreStride(call.s)) + Rounded<C>(ProductWorkspace<C>(call, call.s));
  if (call.dropout_p > 0)
    total += Rounded<C>(rows * ScoreStride(call.s)) + Rounded<C>(WordRow<C>(call.s));
  if constexpr (!std::is_same_v<T, C>) {
    total += Rounded<C>(rows * call.d) + Rounded<C>(call.s * call.d) + Rounded<C>(call.s * call.e) +
             Rounded<C>(rows * call.e);
  }
  return total;
}

template <typename T>
int64_t AttentionWorker<T>::BackwardScratch(const AttentionCall& call, int64_t keys) {
  const int64_t rows = std::min(kQueryBlock, call.t);
  int64_t total = 2 * Rounded<C>(rows * ScoreStride(keys)) +
                  Rounded<C>(ProductWorkspace<C>(call, keys)) + Rounded<C>(rows) +
                  2 * Rounded<C>(call.e);
  if (call.dropout_p > 0)
    total += Rounded<C>(rows * ScoreStride(keys)) + Rounded<C>(WordRow<C>(keys));
  if constexpr (!std::is_same_v<T, C>) {
    total += 2 * Rounded<C>(rows * call.d) + Rounded<C>(rows * call.e) +
             2 * Rounded<C>(keys * call.d) + 2 * Rounded<C>(keys * call.e);
  }
  return total;
}

template <typename T>
typename AttentionWorker<T>::C* AttentionWorker<T>::Take(int64_t count) {
  C* const result = next_;
  next_ += Rounded<C>(count);
  return result;
}

template <typename T>
typename AttentionWorker<T>::View AttentionWorker<T>::Load(const HeadMatrices& matrices,
                                                           int64_t head, int64_t first_row,
                                                           int64_t rows, int64_t cols,
                                                           C* buffer) const {
  const T* data = RowPointer<T>(call_, matrices, head, first_row);
  if constexpr (std::is_same_v<T, C>) {
    return {data, matrices.row_stride, matrices.col_stride};
  } else {
    if (matrices.col_stride == 1) {
      ConvertRows(data, {rows, cols, matrices.row_stride, cols}, buffer);
      return {buffer, cols, 1};
    }
    for (int64_t i = 0; i < rows; ++i) {
      const T* row = data + i * matrices.row_stride;
      for (int64_t j = 0; j < cols; ++j) {
        buffer[i * cols + j] = ToFloat(row[j * matrices.col_stride]);
      }
    }
    return {buffer, cols, 1};
  }
}

template <typename T>
void AttentionWorker<T>::Multiply(const View& a, const View& b, int64_t m, int64_t n, int64_t k,
                                  C* c, int64_t stride, bool accumulate) {
  BlockGemmCall<C> call;
  call.m = m;
  call.n = n;
  call.k = k;
  call.a = a.data;
  call.a_row_stride = a.row_stride;
  call.a_col_stride = a.col_stride;
  call.b = b.data;
  call.b_row_stride = b.row_stride;
  call.b_col_stride = b.col_stride;
  call.c = c;
  call.c_row_stride = stride;
  call.accumulate = accumulate;
  call.workspace = next_;  // what is left of the scratch
  BlockGemm(call);
}

template <typename T>
template <typename M>
void AttentionWorker<T>::AddMask(const Block& block, C* scores) const {
  const C scale = static_cast<C>(call_.scale);
  for (int64_t i = 0; i < block.rows; ++i) {
    C* row = scores + i * ScoreStride(block.keys);
    const M* mask = RowPointer<M>(call_, call_.mask, block.head, block.first_row + i) +
                    block.first_key * call_.mask.col_stride;
    for (int64_t j = 0; j < block.keys; ++j) {
      const M& value = mask[j * call_.mask.col_stride];
      if constexpr (std::is_same_v<M, bool>) {
        row[j] = value ? row[j] * scale : -std::numeric_limits<C>::infinity();
      } else if constexpr (std::is_same_v<M, C>) {
        row[j] = row[j] * scale + value;
      } else {
        row[j] = row[j] * scale + ToFloat(value);
      }
    }
  }
}

template <typename T>
double AttentionWorker<T>::Scores(const Block& block, const View& q, const View& k, C* scores) {
  Multiply(q, {k.data, k.col_stride, k.row_stride}, block.rows, block.keys, call_.d, scores,
           ScoreStride(block.keys), false);
  if (call_.mask.data == nullptr) return call_.scale;
  if (call_.mask.dtype == DType::kBool) {
    AddMask<bool>(block, scores);
  } else {
    AddMask<T>(block, scores);
  }
  return 1;
}

template <typename T>
void AttentionWorker<T>::DropoutFactors(const Block& block, C* factors) {
  auto* words = reinterpret_cast<uint32_t*>(next_);  // free between products
  const uint32_t threshold = DropoutThreshold(call_.dropout_p);
  const C kept = call_.dropout_p < 1 ? static_cast<C>(1 / (1 - call_.dropout_p)) : C{0};
  for (int64_t i = 0; i < block.rows; ++i) {
    const int64_t begin = (block.head * call_.t + block.first_row + i) * call_.s + block.first_key;
    RandomWords(call_.key, begin, block.keys, words);
    C* row = factors + i * ScoreStride(block.keys);
    for (int64_t j = 0; j < block.keys; ++j) row[j] = (words[j] >> 8) >= threshold ? kept : C{0};
  }
}

template <typename T>
typename AttentionWorker<T>::C* AttentionWorker<T>::OutputRows(const HeadMatrices& matrices,
                                                               int64_t head, int64_t first_row,
                                                               int64_t cols, C* buffer,
                                                               int64_t* stride) const {
  if constexpr (std::is_same_v<T, C>) {
    *stride = matrices.row_stride;
    return RowPointer<C>(call_, matrices, head, first_row);
  } else {
    *stride = cols;
    return buffer;
  }
}

template <typename T>
void AttentionWorker<T>::StoreRows(const HeadMatrices& matrices, int64_t head, int64_t first_row,
                                   int64_t rows, int64_t cols, const C* buffer) const {
  if constexpr (!std::is_same_v<T, C>) {
    ConvertRows(buffer, {rows, cols, cols, matrices.row_stride},
                RowPointer<T>(call_, matrices, head, first_row));
  }
}

template <typename T>
void AttentionWorker<T>::Forward(int64_t head, int64_t first_row) {
  C* const scratch = next_;
  constexpr bool kConverts = !std::is_same_v<T, C>;
  const int64_t rows = std::min(kQueryBlock, call_.t - first_row);
  const int64_t keys = call_.causal ? std::min(call_.s, first_row + rows) : call_.s;
  const int64_t stride = ScoreStride(keys);
  const Block block{head, first_row, rows, 0, keys};
  C* const scores = Take(rows * stride);
  C* const factors = call_.dropout_p > 0 ? Take(rows * stride) : nullptr;
  C* const y_buffer = kConverts ? Take(rows * call_.e) : nullptr;
  const View q =
      Load(call_.q, head, first_row, rows, call_.d, kConverts ? Take(rows * call_.d) : nullptr);
  const View k = Load(call_.k, head, 0, keys, call_.d, kConverts ? Take(keys * call_.d) : nullptr);
  const View v = Load(call_.v, head, 0, keys, call_.e, kConverts ? Take(keys * call_.e) : nullptr);

  const double scale = Scores(block, q, k, scores);
  AttentionSoftmax<C>({scores, rows, keys, stride, first_row, 0, call_.causal}, scale,
                      static_cast<C*>(call_.log_sum_exp) + head * call_.t + first_row);
  if (factors != nullptr) {
    DropoutFactors(block, factors);
    AttentionMultiply(rows * stride, scores, factors, scores);
  }
  int64_t y_stride = 0;
  C* const y = OutputRows(call_.y, head, first_row, call_.e, y_buffer, &y_stride);
  Multiply({scores, stride, 1}, v, rows, call_.e, keys, y, y_stride, false);
  StoreRows(call_.y, head, first_row, rows, call_.e, y);
  next_ = scratch;
}

template <typename T>
void AttentionWorker<T>::BackwardBlock(const BackwardPart& part, const Block& block, const View& k,
                                       const View& v, C* dk, int64_t dk_stride, C* dv,
                                       int64_t dv_stride) {
  C* const scratch = next_;
  constexpr bool kConverts = !std::is_same_v<T, C>;
  const int64_t rows = block.rows, keys = block.keys, stride = ScoreStride(keys);
  C* const p = Take(rows * stride);
  C* const dp = Take(rows * stride);
  C* const factors = call_.dropout_p > 0 ? Take(rows * stride) : nullptr;
  C* const delta = Take(rows);
  C* const grad_row = Take(call_.e);
  C* const y_row = Take(call_.e);
  const View q = Load(call_.q, block.head, block.first_row, rows, call_.d,
                      kConverts ? Take(rows * call_.d) : nullptr);
  const View grad = Load(call_.grad, block.head, block.first_row, rows, call_.e,
                         kConverts ? Take(rows * call_.e) : nullptr);
  C* const dq_buffer = kConverts && part.want_dq ? Take(rows * call_.d) : nullptr;

  // delta = sum over features of grad * y: what softmax's gradient subtracts.
  for (int64_t i = 0; i < rows; ++i) {
    const View y = Load(call_.y, block.head, block.first_row + i, 1, call_.e, y_row);
    const C* grad_i = grad.data + i * grad.row_stride;
    delta[i] = AttentionDot<C>(call_.e, Adjacent(grad_i, grad.col_stride, call_.e, grad_row),
                               Adjacent(y.data, y.col_stride, call_.e, y_row));
  }

  const double scale = Scores(block, q, k, p);
  const C* lse = static_cast<const C*>(call_.log_sum_exp) + block.head * call_.t + block.first_row;
  AttentionProbabilities<C>({p, rows, keys, stride, block.first_row, block.first_key, call_.causal},
                            scale, lse);
  if (factors != nullptr) DropoutFactors(block, factors);
  if (part.want_dkv) {  // dv += (p * factors)^T * grad
    const C* dropped = p;
    if (factors != nullptr) {
      AttentionMultiply(rows * stride, p, factors, dp);
      dropped = dp;
    }
    Multiply({dropped, 1, stride}, grad, keys, call_.e, rows, dv, dv_stride, true);
  }
  Multiply(grad, {v.data, v.col_stride, v.row_stride}, rows, keys, call_.e, dp, stride, false);
  if (factors != nullptr) AttentionMultiply(rows * stride, dp, factors, dp);
  AttentionScoreGradients<C>({dp, rows, stride, stride}, p, delta, call_.scale);
  if (part.want_dkv) Multiply({dp, 1, stride}, q, keys, call_.d, rows, dk, dk_stride, true);
  if (part.want_dq) {
    int64_t dq_stride = 0;
    C* const dq = OutputRows(call_.dq, block.head, block.first_row, call_.d, dq_buffer, &dq_stride);
    Multiply({dp, stride, 1}, k, rows, call_.d, keys, dq, dq_stride, false);
    StoreRows(call_.dq, block.head, block.first_row, rows, call_.d, dq);
  }
  next_ = scratch;
}

template <typename T>
void AttentionWorker<T>::Backward(const BackwardPart& part) {
  C* const scratch = next_;
  constexpr bool kConverts = !std::is_same_v<T, C>;
  const View k = Load(call_.k, part.head, part.first_key, part.keys, call_.d,
                      kConverts ? Take(part.keys * call_.d) : nullptr);
  const View v = Load(call_.v, part.head, part.first_key, part.keys, call_.e,
                      kConverts ? Take(part.keys * call_.e) : nullptr);
  C* dk = nullptr;
  C* dv = nullptr;
  int64_t dk_stride = 0, dv_stride = 0;
  if (part.want_dkv) {
    C* const dk_buffer = kConverts ? Take(part.keys * call_.d) : nullptr;
    C* const dv_buffer = kConverts ? Take(part.keys * call_.e) : nullptr;
    dk = OutputRows(call_.dk, part.head, part.first_key, call_.d, dk_buffer, &dk_stride);
    dv = OutputRows(call_.dv, part.head, part.first_key, call_.e, dv_buffer, &dv_stride);
    for (int64_t j = 0; j < part.keys; ++j) {
      std::fill_n(dk + j * dk_stride, call_.d, C{0});
      std::fill_n(dv + j * dv_stride, call_.e, C{0});
    }
  }
  for (int64_t row = part.first_row; row < part.first_row + part.rows; row += kQueryBlock) {
    Block block{part.head, row, std::min(kQueryBlock, part.first_row + part.rows - row),
                part.first_key, part.keys};
    // Keys above the diagonal have no part in this block.
    if (call_.causal) block.keys = std::min(part.keys, row + block.rows - part.first_key);
    if (block.keys <= 0 && !part.want_dq) continue;
    BackwardBlock(part, block, k, v, dk, dk_stride, dv, dv_stride);
  }
  if (part.want_dkv) {
    StoreRows(call_.dk, part.head, part.first_key, part.keys, call_.d, dk);
    StoreRows(call_.dv, part.head, part.first_key, part.keys, call_.e, dv);
  }
  next_ = scratch;
}

template class AttentionWorker<float>;
template class AttentionWorker<double>;
template class AttentionWorker<bfloat16>;
template class AttentionWorker<float16>;

}  // namespace lockstep::cpu
