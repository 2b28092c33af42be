// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/cpu/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/attention_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/row_math-inl.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"
#include "lockstep/tensor/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Columns that row i of the block attends to.
template <typename C>
int64_t AttendedColumns(const ScoreBlock<C>& b, int64_t i) {
  if (!b.causal) return b.cols;
  return std::clamp<int64_t>(b.first_row - b.first_col + i + 1, 0, b.cols);
}

// Hides the columns behind `count` up to the next whole vector, which is returned: minus infinity
// has the exponential 0, and rows need no partial stores. Rows have room for it (attention_rows.h).
template <typename C>
size_t PadRow(C* row, size_t count) {
  const hn::ScalableTag<C> d;
  const size_t lanes = hn::Lanes(d);
  const size_t padded = (count + lanes - 1) / lanes * lanes;
  std::fill(row + count, row + padded, -std::numeric_limits<C>::infinity());
  return padded;
}

template <typename C>
void FillZeros(C* row, size_t begin, int64_t end) {
  if (static_cast<int64_t>(begin) < end) std::fill(row + begin, row + end, C{0});
}

// Minus infinity times a scale that is not positive would not hide a column: such a scale is
// applied to the scores first. Returns the scale that is left.
template <typename C>
C ApplyOddScale(const ScoreBlock<C>& b, double scale) {
  if (scale > 0) return static_cast<C>(scale);
  for (int64_t i = 0; i < b.rows; ++i) {
    for (int64_t j = 0; j < b.cols; ++j) b.data[i * b.stride + j] *= static_cast<C>(scale);
  }
  return C{1};
}

template <typename C>
void SoftmaxBlock(const ScoreBlock<C>& b, double scale_number, C* log_sum_exp) {
  const hn::ScalableTag<C> d;
  const C scale = ApplyOddScale(b, scale_number);
  const auto s = hn::Set(d, scale);
  for (int64_t i = 0; i < b.rows; ++i) {
    C* row = b.data + i * b.stride;
    const size_t count = PadRow(row, static_cast<size_t>(AttendedColumns(b, i)));
    C max = scale * RowMax<C>(count, row);
    // Minus infinity everywhere, or nothing to attend to: 0 keeps the exponentials 0, not NaN.
    if (max == -std::numeric_limits<C>::infinity()) max = 0;
    const auto m = hn::Set(d, max);
    const C sum = RowSumStored<C>(
        count, row,
        [d, s, m](auto v) HWY_ATTR { return ExpOfNonPositiveOrZero(d, hn::MulSub(v, s, m)); }, row);
    log_sum_exp[i] = max + std::log(sum);
    const auto inverse = hn::Set(d, sum == 0 ? C{0} : C{1} / sum);
    Transform(
        d, count, row, [inverse](auto v) HWY_ATTR { return hn::Mul(v, inverse); }, row);
    FillZeros(row, count, b.cols);
  }
}

template <typename C>
void ProbabilityBlock(const ScoreBlock<C>& b, double scale_number, const C* log_sum_exp) {
  const hn::ScalableTag<C> d;
  const auto s = hn::Set(d, ApplyOddScale(b, scale_number));
  for (int64_t i = 0; i < b.rows; ++i) {
    C* row = b.data + i * b.stride;
    const bool attends = log_sum_exp[i] != -std::numeric_limits<C>::infinity();
    const size_t count = attends ? PadRow(row, static_cast<size_t>(AttendedColumns(b, i))) : 0;
    const auto l = hn::Set(d, log_sum_exp[i]);
    Transform(
        d, count, row,
        [d, s, l](auto v) HWY_ATTR { return ExpOfNonPositiveOrZero(d, hn::MulSub(v, s, l)); }, row);
    FillZeros(row, count, b.cols);
  }
}

template <typename C>
void GradientBlock(const ScoreBlock<C>& b, const C* p, const C* delta, double scale_number) {
  const hn::ScalableTag<C> d;
  const auto s = hn::Set(d, static_cast<C>(scale_number));
  for (int64_t i = 0; i < b.rows; ++i) {
    C* row = b.data + i * b.stride;
    const auto own = hn::Set(d, delta[i]);
    Transform(
        d, static_cast<size_t>(b.cols), row,
        [s, own](auto dp, auto prob)
            HWY_ATTR { return hn::Mul(hn::Mul(prob, hn::Sub(dp, own)), s); },
        row, p + i * b.stride);
  }
}

template <typename C>
void MultiplyElements(int64_t count, const C* a, const C* b, C* out) {
  const hn::ScalableTag<C> d;
  Transform(
      d, static_cast<size_t>(count), out, [](auto x, auto y) HWY_ATTR { return hn::Mul(x, y); }, a,
      b);
}

template <typename C>
C DotElements(int64_t count, const C* a, const C* b) {
  return RowSum<C>(
      static_cast<size_t>(count), [](auto x, auto y) HWY_ATTR { return hn::Mul(x, y); }, a, b);
}

// HWY_EXPORT takes plain functions.
void SoftmaxF(const ScoreBlock<float>& b, double s, float* l) { SoftmaxBlock(b, s, l); }
void SoftmaxD(const ScoreBlock<double>& b, double s, double* l) { SoftmaxBlock(b, s, l); }
void ProbabilityF(const ScoreBlock<float>& b, double s, const float* l) {
  ProbabilityBlock(b, s, l);
}
void ProbabilityD(const ScoreBlock<double>& b, double s, const double* l) {
  ProbabilityBlock(b, s, l);
}
void GradientF(const ScoreBlock<float>& b, const float* p, const float* delta, double s) {
  GradientBlock(b, p, delta, s);
}
void GradientD(const ScoreBlock<double>& b, const double* p, const double* delta, double s) {
  GradientBlock(b, p, delta, s);
}
void MultiplyF(int64_t n, const float* a, const float* b, float* o) {
  MultiplyElements(n, a, b, o);
}
void MultiplyD(int64_t n, const double* a, const double* b, double* o) {
  MultiplyElements(n, a, b, o);
}
float DotF(int64_t n, const float* a, const float* b) { return DotElements(n, a, b); }
double DotD(int64_t n, const double* a, const double* b) { return DotElements(n, a, b); }

}  // namespace
}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {

HWY_EXPORT(SoftmaxF);
HWY_EXPORT(SoftmaxD);
HWY_EXPORT(ProbabilityF);
HWY_EXPORT(ProbabilityD);
HWY_EXPORT(GradientF);
HWY_EXPORT(GradientD);
HWY_EXPORT(MultiplyF);
HWY_EXPORT(MultiplyD);
HWY_EXPORT(DotF);
HWY_EXPORT(DotD);

template <>
void AttentionSoftmax(const ScoreBlock<float>& block, double scale, float* log_sum_exp) {
  HWY_DYNAMIC_DISPATCH(SoftmaxF)(block, scale, log_sum_exp);
}
template <>
void AttentionSoftmax(const ScoreBlock<double>& block, double scale, double* log_sum_exp) {
  HWY_DYNAMIC_DISPATCH(SoftmaxD)(block, scale, log_sum_exp);
}
template <>
void AttentionProbabilities(const ScoreBlock<float>& block, double scale,
                            const float* log_sum_exp) {
  HWY_DYNAMIC_DISPATCH(ProbabilityF)(block, scale, log_sum_exp);
}
template <>
void AttentionProbabilities(const ScoreBlock<double>& block, double scale,
                            const double* log_sum_exp) {
  HWY_DYNAMIC_DISPATCH(ProbabilityD)(block, scale, log_sum_exp);
}
template <>
void AttentionScoreGradients(const ScoreBlock<float>& block, const float* p, const float* delta,
                             double scale) {
  HWY_DYNAMIC_DISPATCH(GradientF)(block, p, delta, scale);
}
template <>
void AttentionScoreGradients(const ScoreBlock<double>& block, const double* p, const double* delta,
                             double scale) {
  HWY_DYNAMIC_DISPATCH(GradientD)(block, p, delta, scale);
}
template <>
void AttentionMultiply(int64_t count, const float* a, const float* b, float* out) {
  HWY_DYNAMIC_DISPATCH(MultiplyF)(count, a, b, out);
}
template <>
void AttentionMultiply(int64_t count, const double* a, const double* b, double* out) {
  HWY_DYNAMIC_DISPATCH(MultiplyD)(count, a, b, out);
}
template <>
float AttentionDot(int64_t count, const float* a, const float* b) {
  return HWY_DYNAMIC_DISPATCH(DotF)(count, a, b);
}
template <>
double AttentionDot(int64_t count, const double* a, const double* b) {
  return HWY_DYNAMIC_DISPATCH(DotD)(count, a, b);
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
