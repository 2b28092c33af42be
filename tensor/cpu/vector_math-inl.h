// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Elementary functions of vectors, for kernels that are compiled once per instruction set.
//
//   const hn::ScalableTag<float> d;
//   auto y = Exp(d, x);   // x, y: hn::Vec<decltype(d)>
//
// Each function takes a tag and vectors of float or double lanes. Every special case is that of the
// C library: NaN, infinities, both zeros, subnormal inputs and results, overflow. A lane's result
// depends on the lane's value only.
//
// Double lanes call the C library one by one: float64 is here for exactness (gradient checks,
// comparisons with other programs), not for speed. Float lanes are computed in vectors; their
// largest errors, in units in the last place of the exact result:
//
//   Exp, Exp2     1.1      Tanh    2.5      Sqrt            0.5 (correctly rounded)
//   Expm1, Log1p  1.6      Erf     1.2      Rsqrt           1.5
//   Log           0.9                       Pow, Sin, Cos   the C library's
//
// Activation functions built on these are in activations-inl.h. This is the one place for vector
// mathematics: Highway's own hwy/contrib/math is not used, because in Debian's version (1.0.3) Exp
// gives 0 for NaN, Log gives finite numbers for infinities and NaN, and there is no erf.

#include <cmath>
#include <limits>

// A toggle, not an include guard: compiled once for each instruction set. See hwy/foreach_target.h.
#if defined(LOCKSTEP_TENSOR_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_TENSOR_CPU_VECTOR_MATH_INL_H_
#undef LOCKSTEP_TENSOR_CPU_VECTOR_MATH_INL_H_
#else
#define LOCKSTEP_TENSOR_CPU_VECTOR_MATH_INL_H_
#endif

#include "hwy/highway.h"
#include "lockstep/tensor/cpu/vector_math_core-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  namespace vi = vector_math_internal;
  if constexpr (vi::kIsDouble<D>) {
    return vi::PerLane(d, x, [](double lane) { return std::exp(lane); });
  } else {
    return vi::ExpBounded(d, vi::AtMost(d, vi::AtLeast(d, x, -104.0f), 89.0f));
  }
}

// e^x for x <= 0 (or NaN): Exp without the work for large x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOfNonPositive(D d, V x) {
  namespace vi = vector_math_internal;
  if constexpr (vi::kIsDouble<D>) {
    return Exp(d, x);
  } else {
    return vi::ExpBounded(d, vi::AtLeast(d, x, -104.0f));
  }
}

// The same with 0 for results below 2^-125: for terms of sums, many of which may be of minus
// infinity. A subnormal result, even one that is rounded to 0, costs some processors a hundred
// cycles.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOfNonPositiveOrZero(D d, V x) {
  namespace vi = vector_math_internal;
  if constexpr (vi::kIsDouble<D>) {
    return Exp(d, x);
  } else {
    constexpr float kLowest = -86.643394f;  // 125 ln(2)
    const V y = vi::ExpBounded(d, vi::AtLeast(d, x, kLowest));
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kLowest)), y);
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2(D d, V x) {
  namespace vi = vector_math_internal;
  if constexpr (vi::kIsDouble<D>) {
    return vi::PerLane(d, x, [](double lane) { return std::exp2(lane); });
  } else {
    const V bounded = vi::AtMost(d, vi::AtLeast(d, x, -151.0f), 129.0f);
    const V shift = hn::Set(d, vi::kRoundingShift);
    const V shifted = hn::Add(bounded, shift);
    const V r = hn::Mul(hn::Sub(bounded, hn::Sub(shifted, shift)), hn::Set(d, 0.693147181f));
    const V y = hn::Add(vi::Expm1Reduced(d, r), hn::Set(d, 1.0f));
    return vi::ScaleByPowerOfTwo(d, y, shifted);
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Expm1(D d, V x) {
  namespace vi = vector_math_internal;
  if constexpr (vi::kIsDouble<D>) {
    return vi::PerLane(d, x, [](double lane) { return std::expm1(lane); });
  } else {
    const V moderate = vi::Expm1Moderate(d, vi::AtMost(d, vi::AtLeast(d, x, -40.0f), 40.0f));
    const V large = hn::IfThenElse(hn::Gt(x, hn::Set(d, 40.0f)), Exp(d, x), moderate);
    return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, large);  // Keeps -0.
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log(D d, V x) {
  namespace vi = vector_math_internal;
  if constexpr (vi::kIsDouble<D>) {
    return vi::PerLane(d, x, [](double lane) { return std::log(lane); });
  } else {
    const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
    const auto is_subnormal = hn::Lt(x, hn::Set(d, std::numeric_limits<float>::min()));
    const V normal = hn::IfThenElse(is_subnormal, hn::Mul(x, hn::Set(d, 0x1p25f)), x);
    const V bias = hn::IfThenElseZero(is_subnormal, hn::Set(d, -25.0f));
    V y = vi::LogNormal(d, normal, bias);
    // Infinity and NaN map to themselves, negative numbers to NaN, zeros to minus infinity.
    y = hn::IfThenElse(hn::Lt(x, infinity), y, x);
    y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, std::numeric_limits<float>::quiet_NaN()),
                       y);
    return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log1p(D d, V x) {
  namespace vi = vector_math_internal;
  if constexpr (vi::kIsDouble<D>) {
    return vi::PerLane(d, x, [](double lane) { return std::log1p(lane); });
  } else {
    const V one = hn::Set(d, 1.0f);
    const V u = hn::Add(x, one);
    // What the addition lost, relative to u: log(1 + x) = log(u) + log(1 + lost / u).
    const V lost =
        hn::IfThenElse(hn::Gt(x, one), hn::Sub(one, hn::Sub(u, x)), hn::Sub(x, hn::Sub(u, one)));
    const V log_u = Log(d, u);
    const auto is_regular = hn::And(hn::Gt(u, hn::Zero(d)), hn::IsFinite(u));
    const V y = hn::IfThenElse(is_regular, hn::Add(log_u, hn::Div(lost, u)), log_u);
    return hn::IfThenElse(hn::Eq(u, one), x, y);  // |x| <= 2^-24, -0 among them.
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Tanh(D d, V x) {
  namespace vi = vector_math_internal;
  if constexpr (vi::kIsDouble<D>) {
    return vi::PerLane(d, x, [](double lane) { return std::tanh(lane); });
  } else {
    // (e^2x - 1) / (e^2x + 1) of |x|; from 2x = 20 on, the quotient is 1.
    const V magnitude = hn::Abs(x);
    const V doubled = vi::AtMost(d, hn::Add(magnitude, magnitude), 20.0f);
    const V e = vi::Expm1Moderate(d, doubled);
    return hn::CopySignToAbs(hn::Div(e, hn::Add(e, hn::Set(d, 2.0f))), x);
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Erf(D d, V x) {
  namespace vi = vector_math_internal;
  if constexpr (vi::kIsDouble<D>) {
    return vi::PerLane(d, x, [](double lane) { return std::erf(lane); });
  } else {
    const V t = vi::AtMost(d, hn::Abs(x), 4.0f);  // Erf(4) is 1 in float.
    const V outer = hn::Neg(vi::Expm1Moderate(d, vi::LogErfc(d, t)));
    const auto is_outer = hn::Gt(t, hn::Set(d, vi::kErfBorder));
    const V magnitude = hn::IfThenElse(is_outer, outer, vi::ErfNearZero(d, t));
    return hn::CopySignToAbs(magnitude, x);
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sqrt(D, V x) {
  return hn::Sqrt(x);
}

// 1 / sqrt(x); the approximate instruction is not used.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Rsqrt(D d, V x) {
  return hn::Div(hn::Set(d, hn::TFromD<D>(1)), hn::Sqrt(x));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Pow(D d, V x, V y) {
  using T = hn::TFromD<D>;
  return vector_math_internal::PerLane(d, x, y, [](T a, T b) { return std::pow(a, b); });
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sin(D d, V x) {
  return vector_math_internal::PerLane(d, x, [](hn::TFromD<D> lane) { return std::sin(lane); });
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Cos(D d, V x) {
  return vector_math_internal::PerLane(d, x, [](hn::TFromD<D> lane) { return std::cos(lane); });
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_TENSOR_CPU_VECTOR_MATH_INL_H_
