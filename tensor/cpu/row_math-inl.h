// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Reductions of one row in vectors, for kernels that are compiled once per instruction set. The
// order of the sum depends on the count only. Elements of 16 bits are summed in float.
//
//   float sum = RowSum<float>(n, [](auto a, auto b) HWY_ATTR { return hn::Mul(a, b); }, x, y);

#include <cstddef>
#include <cstdint>
#include <limits>

// A toggle, not an include guard: compiled once for each instruction set. See hwy/foreach_target.h.
#if defined(LOCKSTEP_TENSOR_CPU_ROW_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_TENSOR_CPU_ROW_MATH_INL_H_
#undef LOCKSTEP_TENSOR_CPU_ROW_MATH_INL_H_
#else
#define LOCKSTEP_TENSOR_CPU_ROW_MATH_INL_H_
#endif

#include "hwy/highway.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Sum of function(from[i]...). Four sums side by side hide the latency of an addition. `count`
// lanes of a tail are kept with a mask, since function(0) need not be 0.
template <typename T, class Function, typename... From>
HWY_INLINE ComputeType<T> RowSum(size_t count, const Function& function, const From*... from) {
  const hn::ScalableTag<ComputeType<T>> d;
  const size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = hn::Add(sum0, function(LoadFull(d, from + i)...));
    sum1 = hn::Add(sum1, function(LoadFull(d, from + i + lanes)...));
    sum2 = hn::Add(sum2, function(LoadFull(d, from + i + 2 * lanes)...));
    sum3 = hn::Add(sum3, function(LoadFull(d, from + i + 3 * lanes)...));
  }
  for (; i + lanes <= count; i += lanes) sum0 = hn::Add(sum0, function(LoadFull(d, from + i)...));
  if (i < count) {
    const auto values = function(LoadPartial(d, from + i, count - i)...);
    sum1 = hn::Add(sum1, hn::IfThenElseZero(hn::FirstN(d, count - i), values));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

// The same, and to[i] = function(from[i]...). Not for elements of 16 bits, which would be rounded.
template <typename T, class Function, typename... From>
HWY_INLINE T RowSumStored(size_t count, T* to, const Function& function, const From*... from) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto v0 = function(LoadFull(d, from + i)...);
    const auto v1 = function(LoadFull(d, from + i + lanes)...);
    hn::StoreU(v0, d, to + i);
    hn::StoreU(v1, d, to + i + lanes);
    sum0 = hn::Add(sum0, v0);
    sum1 = hn::Add(sum1, v1);
  }
  for (; i < count; i += lanes) {
    const size_t left = count - i;
    if (left >= lanes) {
      const auto v = function(LoadFull(d, from + i)...);
      hn::StoreU(v, d, to + i);
      sum0 = hn::Add(sum0, v);
    } else {
      const auto v = function(LoadPartial(d, from + i, left)...);
      StorePartial(v, d, to + i, left);
      sum1 = hn::Add(sum1, hn::IfThenElseZero(hn::FirstN(d, left), v));
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

// The largest element, -infinity for none. NaN may or may not win: whoever subtracts it from the
// elements sees the NaN there.
template <typename T>
HWY_INLINE ComputeType<T> RowMax(size_t count, const T* x) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const size_t lanes = hn::Lanes(d);
  constexpr C kLowest = -std::numeric_limits<C>::infinity();
  auto max0 = hn::Set(d, kLowest), max1 = max0;
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    max0 = hn::Max(max0, LoadFull(d, x + i));
    max1 = hn::Max(max1, LoadFull(d, x + i + lanes));
  }
  for (; i + lanes <= count; i += lanes) max0 = hn::Max(max0, LoadFull(d, x + i));
  if (i < count) max1 = hn::Max(max1, LoadPartialOr(d, x + i, count - i, kLowest));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(max0, max1)));
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_TENSOR_CPU_ROW_MATH_INL_H_
