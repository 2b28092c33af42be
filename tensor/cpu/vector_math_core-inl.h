// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The pieces that the functions of vector_math-inl.h and activations-inl.h are made of: argument
// reduction, polynomials, scaling. Not for kernels. The functions for float lanes state the range
// of arguments for which they hold; a NaN always stays a NaN.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// A toggle, not an include guard: compiled once for each instruction set. See hwy/foreach_target.h.
#if defined(LOCKSTEP_TENSOR_CPU_VECTOR_MATH_CORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_TENSOR_CPU_VECTOR_MATH_CORE_INL_H_
#undef LOCKSTEP_TENSOR_CPU_VECTOR_MATH_CORE_INL_H_
#else
#define LOCKSTEP_TENSOR_CPU_VECTOR_MATH_CORE_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

namespace vector_math_internal {

template <class D>
inline constexpr bool kIsDouble = std::is_same_v<hn::TFromD<D>, double>;

// function(lane) for each lane.
template <class D, class Function>
HWY_INLINE hn::Vec<D> PerLane(D d, hn::Vec<D> x, Function function) {
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = function(lanes[i]);
  return hn::Load(d, lanes);
}

template <class D, class Function>
HWY_INLINE hn::Vec<D> PerLane(D d, hn::Vec<D> x, hn::Vec<D> y, Function function) {
  HWY_ALIGN hn::TFromD<D> x_lanes[hn::MaxLanes(d)];
  HWY_ALIGN hn::TFromD<D> y_lanes[hn::MaxLanes(d)];
  hn::Store(x, d, x_lanes);
  hn::Store(y, d, y_lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) x_lanes[i] = function(x_lanes[i], y_lanes[i]);
  return hn::Load(d, x_lanes);
}

// x^(2^k).
template <int k, class V>
HWY_INLINE V RepeatedSquare(V x) {
  if constexpr (k == 0) {
    return x;
  } else {
    const V root = RepeatedSquare<k - 1>(x);
    return hn::Mul(root, root);
  }
}

// c[begin] + c[begin + 1] x + ... with `count` coefficients, by Estrin's scheme: half the latency
// of Horner's, which is what limits these functions.
template <size_t begin, size_t count, class D, class V, size_t n>
HWY_INLINE V PolynomialPart(D d, V x, const float (&c)[n]) {
  if constexpr (count == 1) {
    return hn::Set(d, c[begin]);
  } else {
    constexpr int k = std::bit_width(count - 1) - 1;
    constexpr size_t low = size_t{1} << k;
    return hn::MulAdd(PolynomialPart<begin + low, count - low>(d, x, c), RepeatedSquare<k>(x),
                      PolynomialPart<begin, low>(d, x, c));
  }
}

template <class D, class V, size_t n>
HWY_INLINE V Polynomial(D d, V x, const float (&coefficients)[n]) {
  return PolynomialPart<0, n>(d, x, coefficients);
}

// Minimum and maximum that keep a NaN in x.
template <class D, class V>
HWY_INLINE V AtMost(D d, V x, hn::TFromD<D> bound) {
  const V b = hn::Set(d, bound);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::Min(b, x);  // These instructions return the second operand if either is NaN.
#else
  return hn::IfThenElse(hn::Gt(x, b), b, x);
#endif
}
template <class D, class V>
HWY_INLINE V AtLeast(D d, V x, hn::TFromD<D> bound) {
  const V b = hn::Set(d, bound);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::Max(b, x);
#else
  return hn::IfThenElse(hn::Lt(x, b), b, x);
#endif
}

// 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits of the sum.
inline constexpr float kRoundingShift = 12582912.0f;

// e^r - 1 for |r| <= ln(2) / 2 and a little beyond, with small relative error.
template <class D, class V>
HWY_INLINE V Expm1Reduced(D d, V r) {
  const V tail = Polynomial(d, r,
                            {5.0000001201e-1f, 1.6666665459e-1f, 4.1665795894e-2f, 8.3334519073e-3f,
                             1.3981999507e-3f, 1.9875691500e-4f});
  return hn::MulAdd(hn::Mul(r, r), tail, r);
}

// x = n ln(2) + r. n is left as n + kRoundingShift, whose low bits are n in two's complement, so
// that shifting them into place needs no conversion.
template <class D>
struct Reduced {
  hn::Vec<D> shifted_n;
  hn::Vec<D> r;
};

template <class D, class V>
HWY_INLINE Reduced<D> ReduceByLn2(D d, V x) {
  const V shift = hn::Set(d, kRoundingShift);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift);
  const V n = hn::Sub(shifted, shift);
  // ln(2) in two parts; the product of n and the first is exact.
  const V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  return {shifted, hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r)};
}

// y * 2^n for |n| <= 252; results may be subnormal or infinite, and are rounded once.
template <class D, class V>
HWY_INLINE V ScaleByPowerOfTwo(D d, V y, V shifted_n) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<V, hn::Vec512<float>>) {
    return V{_mm512_scalef_ps(y.raw, hn::Sub(shifted_n, hn::Set(d, kRoundingShift)).raw)};
  }
#endif
  const hn::RebindToSigned<D> di;
  const auto n = hn::Sub(hn::BitCast(di, shifted_n), hn::BitCast(di, hn::Set(d, kRoundingShift)));
  const auto half = hn::ShiftRight<1>(n);
  const auto one = hn::BitCast(di, hn::Set(d, 1.0f));
  const V first = hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(half), one));
  const V second = hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::Sub(n, half)), one));
  return hn::Mul(hn::Mul(y, first), second);
}

// 2^n for -126 <= n <= 127.
template <class D, class V>
HWY_INLINE V PowerOfTwo(D d, V shifted_n) {
  const hn::RebindToSigned<D> di;
  const auto one = hn::BitCast(di, hn::Set(d, 1.0f));
  // The shift drops the bits of kRoundingShift.
  return hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted_n)), one));
}

// e^x - 1 for |x| <= 80.
template <class D, class V>
HWY_INLINE V Expm1Moderate(D d, V x) {
  const Reduced<D> reduced = ReduceByLn2(d, x);
  const V scale = PowerOfTwo(d, reduced.shifted_n);
  return hn::MulAdd(scale, Expm1Reduced(d, reduced.r), hn::Sub(scale, hn::Set(d, 1.0f)));
}

// x = m 2^e with m in [sqrt(1/2), sqrt(2)), for positive normal x. Gives m - 1 and e.
template <class D>
struct Split {
  hn::Vec<D> mantissa_minus_one;
  hn::Vec<D> exponent;
};

template <class D, class V>
HWY_INLINE Split<D> SplitExponent(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto sqrt_half = hn::Set(di, 0x3f3504f3);
  const auto offset = hn::Sub(hn::BitCast(di, x), sqrt_half);
  const auto exponent = hn::ShiftRight<23>(offset);
  const auto mantissa = hn::Add(hn::And(offset, hn::Set(di, 0x7fffff)), sqrt_half);
  return {hn::Sub(hn::BitCast(d, mantissa), hn::Set(d, 1.0f)), hn::ConvertTo(d, exponent)};
}

// log(x) for positive normal x, plus `exponent_bias` * ln(2).
template <class D, class V>
HWY_INLINE V LogNormal(D d, V x, V exponent_bias) {
  const Split<D> split = SplitExponent(d, x);
  const V m = split.mantissa_minus_one;
  const V e = hn::Add(split.exponent, exponent_bias);
  const V m2 = hn::Mul(m, m);
  V y = Polynomial(
      d, m,
      {3.3333331174e-1f, -2.4999993993e-1f, 2.0000714765e-1f, -1.6668057665e-1f, 1.4249322787e-1f,
       -1.2420140846e-1f, 1.1676998740e-1f, -1.1514610310e-1f, 7.0376836292e-2f});
  y = hn::Mul(hn::Mul(y, m), m2);
  y = hn::MulAdd(e, hn::Set(d, -2.12194440e-4f), y);
  y = hn::NegMulAdd(hn::Set(d, 0.5f), m2, y);
  return hn::MulAdd(e, hn::Set(d, 0.693359375f), hn::Add(m, y));
}

// e^x for -104 <= x <= 89 (or NaN): 0 and infinity are reached inside these bounds.
template <class D, class V>
HWY_INLINE V ExpBounded(D d, V x) {
  const Reduced<D> reduced = ReduceByLn2(d, x);
  const V y = hn::Add(Expm1Reduced(d, reduced.r), hn::Set(d, 1.0f));
  return ScaleByPowerOfTwo(d, y, reduced.shifted_n);
}

// Erf in two pieces, with coefficients by Norbert Juffa: a series up to kErfBorder, and e^p(t) for
// the complement beyond.
inline constexpr float kErfBorder = 0.927734375f;

template <class D, class V>
HWY_INLINE V ErfNearZero(D d, V x) {
  const V q = Polynomial(d, hn::Mul(x, x),
                         {1.28379166e-1f, -3.76125336e-1f, 1.12819925e-1f, -2.67681349e-2f,
                          4.99119423e-3f, -5.96761703e-4f});
  return hn::MulAdd(q, x, x);
}

// log(erfc(t)) from kErfBorder on. The absolute error grows from 1e-7 to 3e-5 at 4, where erfc
// itself is 1.5e-8; beyond, the value goes on falling, but is a rough one.
template <class D, class V>
HWY_INLINE V LogErfc(D d, V t) {
  const V p = Polynomial(d, t,
                         {-1.28717512e-1f, -6.34846687e-1f, -1.06777877e-1f, 2.42546219e-2f,
                          -3.88396438e-3f, 3.83197126e-4f, -1.72853470e-5f});
  return hn::MulSub(p, t, t);
}

}  // namespace vector_math_internal
}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_TENSOR_CPU_VECTOR_MATH_CORE_INL_H_
