// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Vectors in and out of memory, for kernels that are compiled once per instruction set.
//
// A kernel computes in float for float, bfloat16 and float16 elements, and in double for double;
// the functions here convert on the way, rounding to nearest even, and a NaN stays a NaN.
//
//   const hn::ScalableTag<ComputeType<T>> d;
//   Transform(d, count, to, [&](auto v) HWY_ATTR { return Exp(d, v); }, from);
//
// or, by hand,
//
//   ForEachVector(d, count, [&](size_t at, size_t lanes) HWY_ATTR {
//     StorePartial(Exp(d, LoadPartial(d, from + at, lanes)), d, to + at, lanes);
//   }, [&](size_t at) HWY_ATTR { StoreFull(Exp(d, LoadFull(d, from + at)), d, to + at); });
//
// The tail of an array runs through the same vector instructions as the rest, on a vector whose
// other lanes are zero, so that the result for an element does not depend on its position. Nothing
// outside the named elements is read or written. Pointers need no alignment beyond their type's.
//
// Lambdas that call Highway need HWY_ATTR: they do not inherit the instruction set otherwise.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/tensor/dtype.h"

// A toggle, not an include guard: compiled once for each instruction set. See hwy/foreach_target.h.
#if defined(LOCKSTEP_TENSOR_CPU_VECTOR_IO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_TENSOR_CPU_VECTOR_IO_INL_H_
#undef LOCKSTEP_TENSOR_CPU_VECTOR_IO_INL_H_
#else
#define LOCKSTEP_TENSOR_CPU_VECTOR_IO_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The lane type in which elements of type T are computed.
template <typename T>
using ComputeType =
    std::conditional_t<std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>, float, T>;

// ---- Conversion between 16-bit patterns and float vectors of the same number of lanes.

template <class DF, class V16>
HWY_INLINE hn::Vec<DF> FromBFloat16Bits(DF df, V16 bits) {
  const hn::Rebind<uint32_t, DF> du32;
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
}

// The bfloat16 nearest to each lane, in the upper half of 32 bits; the lower half means nothing.
template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<uint32_t, DF>> RoundedToUpperHalf(DF, hn::Vec<DF> v) {
  const hn::Rebind<uint32_t, DF> du32;
  const auto bits = hn::BitCast(du32, v);
  const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1));
  const auto rounded = hn::Add(bits, hn::Add(is_odd, hn::Set(du32, 0x7fff)));
  // Rounding could carry a NaN into infinity, and cutting could leave it without mantissa bits.
  const auto quiet = hn::Or(bits, hn::Set(du32, 0x400000));
  return hn::IfThenElse(hn::RebindMask(du32, hn::IsNaN(v)), quiet, rounded);
}

template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, DF>> ToBFloat16Bits(DF df, hn::Vec<DF> v) {
  const hn::Rebind<int32_t, DF> di32;
  const hn::Rebind<uint16_t, DF> du16;
  return hn::DemoteTo(du16, hn::BitCast(di32, hn::ShiftRight<16>(RoundedToUpperHalf(df, v))));
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

template <class DF, class V16>
HWY_INLINE hn::Vec<DF> FromFloat16Bits(DF df, V16 bits) {
  const hn::Rebind<hwy::float16_t, DF> df16;
  return hn::PromoteTo(df, hn::BitCast(df16, bits));
}

template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, DF>> ToFloat16Bits(DF, hn::Vec<DF> v) {
  const hn::Rebind<hwy::float16_t, DF> df16;
  const hn::Rebind<uint16_t, DF> du16;
  return hn::BitCast(du16, hn::DemoteTo(df16, v));
}

#else  // Highway's own conversions without F16C drop subnormals and turn NaN into infinity.

template <class DF, class V16>
HWY_INLINE hn::Vec<DF> FromFloat16Bits(DF df, V16 bits) {
  const hn::Rebind<uint32_t, DF> du32;
  const hn::Rebind<int32_t, DF> di32;
  const auto wide = hn::PromoteTo(du32, bits);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du32, 0x8000)));
  const auto magnitude = hn::And(wide, hn::Set(du32, 0x7fff));
  const auto i_magnitude = hn::BitCast(di32, magnitude);
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(du32, (127u - 15u) << 23));
  const auto special = hn::Add(shifted, hn::Set(du32, (255u - 31u) << 23));
  const auto quiet = hn::Or(special, hn::Set(du32, 0x400000));
  const auto subnormal =
      hn::BitCast(du32, hn::Mul(hn::ConvertTo(df, i_magnitude), hn::Set(df, 0x1p-24f)));
  const auto above = [&](int32_t bound) HWY_ATTR {
    return hn::RebindMask(du32, hn::Gt(i_magnitude, hn::Set(di32, bound)));
  };
  auto result = hn::IfThenElse(above(0x3ff), normal, subnormal);
  result = hn::IfThenElse(above(0x7bff), special, result);
  result = hn::IfThenElse(above(0x7c00), quiet, result);
  return hn::BitCast(df, hn::Or(result, sign));
}

template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, DF>> ToFloat16Bits(DF df, hn::Vec<DF> v) {
  const hn::Rebind<uint32_t, DF> du32;
  const hn::Rebind<int32_t, DF> di32;
  const hn::Rebind<uint16_t, DF> du16;
  const auto bits = hn::BitCast(du32, v);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 0x8000));
  const auto magnitude = hn::And(bits, hn::Set(du32, 0x7fffffff));
  const auto is_odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du32, 1));
  // Wraps below 2^-14, where it is not used. From 65520 on the carry gives infinity.
  const auto normal = hn::ShiftRight<13>(
      hn::Add(magnitude, hn::Add(is_odd, hn::Set(du32, 0xfffu - ((127u - 15u) << 23)))));
  // Adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded to nearest even.
  const auto half = hn::Set(df, 0.5f);
  const auto subnormal = hn::Sub(hn::BitCast(du32, hn::Add(hn::BitCast(df, magnitude), half)),
                                 hn::BitCast(du32, half));
  const auto quiet =
      hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du32, 0x3ff)), hn::Set(du32, 0x7e00));
  const auto above = [&](int32_t bound) HWY_ATTR {
    return hn::RebindMask(du32, hn::Gt(hn::BitCast(di32, magnitude), hn::Set(di32, bound)));
  };
  auto result = hn::IfThenElse(above(0x387fffff), normal, subnormal);
  result = hn::IfThenElse(above(0x477fffff), hn::Set(du32, 0x7c00), result);
  result = hn::IfThenElse(above(0x7f800000), quiet, result);
  return hn::DemoteTo(du16, hn::BitCast(di32, hn::Or(result, sign)));
}

#endif

// ---- Whole vectors.

// Lanes(d) elements from `from`. T is the lane type of d, or bfloat16 or float16 for float lanes.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadFull(D d, const T* from) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    return hn::LoadU(d, from);
  } else {
    static_assert(std::is_same_v<ComputeType<T>, hn::TFromD<D>>, "no conversion between these");
    const hn::Rebind<uint16_t, D> du16;
    const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(from));
    if constexpr (std::is_same_v<T, bfloat16>) return FromBFloat16Bits(d, bits);
    if constexpr (std::is_same_v<T, float16>) return FromFloat16Bits(d, bits);
  }
}

template <class D, typename T>
HWY_INLINE void StoreFull(hn::Vec<D> v, D d, T* to) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    hn::StoreU(v, d, to);
  } else {
    static_assert(std::is_same_v<ComputeType<T>, hn::TFromD<D>>, "no conversion between these");
    const hn::Rebind<uint16_t, D> du16;
    auto* bits_to = reinterpret_cast<uint16_t*>(to);
    if constexpr (std::is_same_v<T, bfloat16>) hn::StoreU(ToBFloat16Bits(d, v), du16, bits_to);
    if constexpr (std::is_same_v<T, float16>) hn::StoreU(ToFloat16Bits(d, v), du16, bits_to);
  }
}

// ---- The first `count` lanes only, 0 <= count <= Lanes(d).

namespace vector_io_internal {

// Whether masked loads and stores of T leave memory behind the mask alone. Elsewhere Highway
// emulates them by whole vectors, which may cross into another page.
template <typename T>
inline constexpr bool kMasksMemory = (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3) &&
                                     (std::is_same_v<T, float> || std::is_same_v<T, double>);

}  // namespace vector_io_internal

// The other lanes are zero.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadPartial(D d, const T* from, size_t count) {
  if constexpr (vector_io_internal::kMasksMemory<T>) {
    return hn::MaskedLoad(hn::FirstN(d, count), d, from);
  } else {
    T buffer[hn::MaxLanes(d)] = {};
    std::memcpy(buffer, from, count * sizeof(T));
    return LoadFull(d, buffer);
  }
}

// The other lanes are `fill`: what does not change a reduction, for example.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadPartialOr(D d, const T* from, size_t count, hn::TFromD<D> fill) {
  return hn::IfThenElse(hn::FirstN(d, count), LoadPartial(d, from, count), hn::Set(d, fill));
}

template <class D, typename T>
HWY_INLINE void StorePartial(hn::Vec<D> v, D d, T* to, size_t count) {
  if constexpr (vector_io_internal::kMasksMemory<T>) {
    hn::BlendedStore(v, hn::FirstN(d, count), d, to);
  } else {
    T buffer[hn::MaxLanes(d)];
    StoreFull(v, d, buffer);
    std::memcpy(to, buffer, count * sizeof(T));
  }
}

// ---- Loops.

// Calls full(at) for each whole vector of [0, count), then partial(at, lanes) if 0 < lanes <
// Lanes(d) elements are left.
template <class D, class Partial, class Full>
HWY_INLINE void ForEachVector(D d, size_t count, const Partial& partial, const Full& full) {
  const size_t lanes = hn::Lanes(d);
  size_t at = 0;
  for (; at + lanes <= count; at += lanes) full(at);
  if (at < count) partial(at, count - at);
}

namespace vector_io_internal {

template <typename... T>
inline constexpr bool kAllBFloat16 = HWY_TARGET != HWY_SCALAR &&
                                     (std::is_same_v<T, bfloat16> && ...);

// Two vectors of bfloat16 neighbours, as the even and the odd ones: no lane moves to another, which
// costs more than the conversion.
template <class D>
HWY_INLINE hn::Vec<D> EvenLanes(D d, const bfloat16* from) {
  const hn::Rebind<uint32_t, D> du32;
  const auto pairs = hn::LoadU(du32, reinterpret_cast<const uint32_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(pairs));
}
template <class D>
HWY_INLINE hn::Vec<D> OddLanes(D d, const bfloat16* from) {
  const hn::Rebind<uint32_t, D> du32;
  const auto pairs = hn::LoadU(du32, reinterpret_cast<const uint32_t*>(from));
  return hn::BitCast(d, hn::And(pairs, hn::Set(du32, 0xffff0000u)));
}
template <class D>
HWY_INLINE void StoreEvenAndOdd(hn::Vec<D> even, hn::Vec<D> odd, D d, bfloat16* to) {
  const hn::Rebind<uint32_t, D> du32;
  const auto low = hn::ShiftRight<16>(RoundedToUpperHalf(d, even));
  const auto high = hn::And(RoundedToUpperHalf(d, odd), hn::Set(du32, 0xffff0000u));
  hn::StoreU(hn::Or(low, high), du32, reinterpret_cast<uint32_t*>(to));
}

// Transform for the first elements, two vectors at a time; returns how many those were.
template <class D, class Function, typename... From>
HWY_INLINE size_t TransformPairs(D d, size_t count, bfloat16* to, const Function& function,
                                 const From*... from) {
  const size_t step = 2 * hn::Lanes(d);
  size_t at = 0;
  for (; at + step <= count; at += step) {
    const auto even = function(EvenLanes(d, from + at)...);
    const auto odd = function(OddLanes(d, from + at)...);
    StoreEvenAndOdd(even, odd, d, to + at);
  }
  return at;
}

}  // namespace vector_io_internal

// to[i] = function(from[i]...) for i in [0, count), with any number of input arrays, each of its
// own element type. `to` may be one of the inputs; otherwise the arrays do not overlap.
template <class D, typename To, class Function, typename... From>
HWY_INLINE void Transform(D d, size_t count, To* to, const Function& function,
                          const From*... from) {
  if constexpr (vector_io_internal::kAllBFloat16<To, From...>) {
    const size_t done = vector_io_internal::TransformPairs(d, count, to, function, from...);
    to += done;
    count -= done;
    ((from += done), ...);
  }
  ForEachVector(
      d, count,
      [&](size_t at, size_t lanes) HWY_ATTR {
        StorePartial(function(LoadPartial(d, from + at, lanes)...), d, to + at, lanes);
      },
      [&](size_t at) HWY_ATTR { StoreFull(function(LoadFull(d, from + at)...), d, to + at); });
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_TENSOR_CPU_VECTOR_IO_INL_H_
