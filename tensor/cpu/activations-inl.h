// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Activation functions of vectors and their derivatives, for kernels that are compiled once per
// instruction set. Float or double lanes, as in vector_math-inl.h.
//
//   Sigmoid(x)      1 / (1 + e^-x)
//   GeluErf(x)      x Phi(x), Phi the normal distribution function; the exact form
//   GeluTanh(x)     x (1 + tanh(u)) / 2 = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
//   ...Derivative   by x, for the backward pass
//
// The forms used here have no cancellation where x is negative and the usual formula subtracts two
// numbers near 1. Largest errors of float lanes, in units in the last place of the exact result,
// plus an absolute part: Sigmoid 2.7; GeluTanh 4 and 1e-8; GeluErf 4 and 4e-8; derivatives 3 and
// 2e-7.
//
// Far from zero GELU is x or -0, never NaN for finite x; of minus infinity it is NaN (an infinite
// activation is an error upstream that must stay visible), of plus infinity it is infinity. The
// derivatives tend to 0 and 1.

#include <cmath>

// A toggle, not an include guard: compiled once for each instruction set. See hwy/foreach_target.h.
#if defined(LOCKSTEP_TENSOR_CPU_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_TENSOR_CPU_ACTIVATIONS_INL_H_
#undef LOCKSTEP_TENSOR_CPU_ACTIVATIONS_INL_H_
#else
#define LOCKSTEP_TENSOR_CPU_ACTIVATIONS_INL_H_
#endif

#include "hwy/highway.h"
#include "lockstep/tensor/cpu/vector_math-inl.h"
#include "lockstep/tensor/cpu/vector_math_core-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

namespace activations_internal {

// sigmoid(x) and its derivative sigmoid(x) (1 - sigmoid(x)).
template <class D>
struct SigmoidParts {
  hn::Vec<D> value;
  hn::Vec<D> derivative;
};

template <class D, class V>
HWY_INLINE SigmoidParts<D> SigmoidWithDerivative(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  const V e = ExpOfNonPositive(d, hn::Neg(hn::Abs(x)));
  const V inverse = hn::Div(one, hn::Add(one, e));
  const V small = hn::Mul(e, inverse);
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), small, inverse), hn::Mul(small, inverse)};
}

// GELU's functions are constant to the last bit beyond this: the exponentials are zero, and no
// power of a bounded x overflows.
template <class D, class V>
HWY_INLINE V Bounded(D d, V x) {
  namespace vi = vector_math_internal;
  constexpr hn::TFromD<D> kBound = vi::kIsDouble<D> ? 40 : 15;
  return vi::AtMost(d, vi::AtLeast(d, x, -kBound), kBound);
}

inline constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
inline constexpr double kCubic = 0.044715;

// 2u of the tanh form; infinite where it overflows.
template <class D, class V>
HWY_INLINE V TwiceTanhArgument(D d, V x) {
  using T = hn::TFromD<D>;
  const V inner = hn::MulAdd(hn::Mul(x, x), hn::Set(d, T(2 * kSqrtTwoOverPi * kCubic)),
                             hn::Set(d, T(2 * kSqrtTwoOverPi)));
  return hn::Mul(x, inner);
}

// The normal distribution function of bounded x.
template <class D, class V>
HWY_INLINE V NormalCdf(D d, V x) {
  namespace vi = vector_math_internal;
  if constexpr (vi::kIsDouble<D>) {
    return vi::PerLane(d, x, [](double lane) { return 0.5 * std::erfc(-lane * M_SQRT1_2); });
  } else {
    // The two pieces of Erf; in the outer one e^p is erfc itself, without the 1 to subtract from.
    const V half = hn::Set(d, 0.5f);
    const V z = hn::Mul(x, hn::Set(d, 0.70710678f));
    const V t = hn::Abs(z);
    const V tail = hn::Mul(half, ExpOfNonPositive(d, vi::LogErfc(d, t)));
    const V outer = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail));
    const V inner = hn::MulAdd(half, vi::ErfNearZero(d, z), half);
    return hn::IfThenElse(hn::Gt(t, hn::Set(d, vi::kErfBorder)), outer, inner);
  }
}

}  // namespace activations_internal

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  return activations_internal::SigmoidWithDerivative(d, x).value;
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluTanh(D d, V x) {
  namespace ai = activations_internal;
  // x sigmoid(2u) without the selection by sign: where e overflows, the quotient is -0.
  const V e = Exp(d, hn::Neg(ai::TwiceTanhArgument(d, x)));
  return hn::Div(x, hn::Add(hn::Set(d, hn::TFromD<D>(1)), e));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluTanhDerivative(D d, V x) {
  namespace ai = activations_internal;
  using T = hn::TFromD<D>;
  const V bounded = ai::Bounded(d, x);
  const auto sigmoid = ai::SigmoidWithDerivative(d, ai::TwiceTanhArgument(d, bounded));
  const V slope =
      hn::MulAdd(hn::Mul(bounded, bounded), hn::Set(d, T(6 * ai::kSqrtTwoOverPi * ai::kCubic)),
                 hn::Set(d, T(2 * ai::kSqrtTwoOverPi)));
  return hn::MulAdd(hn::Mul(bounded, slope), sigmoid.derivative, sigmoid.value);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluErf(D d, V x) {
  namespace ai = activations_internal;
  return hn::Mul(x, ai::NormalCdf(d, ai::Bounded(d, x)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluErfDerivative(D d, V x) {
  namespace ai = activations_internal;
  using T = hn::TFromD<D>;
  const V bounded = ai::Bounded(d, x);
  const V density =
      hn::Mul(hn::Set(d, T(0.39894228040143267794)),  // 1 / sqrt(2 pi)
              ExpOfNonPositive(d, hn::Mul(hn::Mul(bounded, bounded), hn::Set(d, T(-0.5)))));
  return hn::MulAdd(bounded, density, ai::NormalCdf(d, bounded));
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_TENSOR_CPU_ACTIVATIONS_INL_H_
