// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
// As the compiler finds it from the root of this repository.
#define HWY_TARGET_INCLUDE "comm/reduce.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::comm {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Highway's `!=` is the ordered comparison, which is false for NaN.
template <class V>
HWY_INLINE auto IsNan(V value) {
  return hn::Not(hn::Eq(value, value));
}

// ---- Loading and storing elements as the type they are accumulated in ----

template <typename T>
struct Lanes {  // float, double
  using Accumulator = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const T* from) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> value, T* to) {
    hn::StoreU(value, d, to);
  }
};

template <>
struct Lanes<bfloat16> {
  using Accumulator = float;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const bfloat16* from) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
  }
  // Highway's own conversion truncates. As lockstep::ToBFloat16: to nearest even, NaN stays NaN.
  template <class D>
  static HWY_INLINE void Store(D, hn::Vec<D> value, bfloat16* to) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    const hn::RebindToSigned<decltype(d16)> d16s;
    const hn::RebindToSigned<D> d32s;
    const auto bits = hn::BitCast(d32, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d32, 0x7fffu)), odd));
    const auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 64u));
    const auto is_nan = hn::RebindMask(d32, IsNan(value));
    const auto result = hn::IfThenElse(is_nan, nan, rounded);
    // Sign-extended from 16 bits, the values pass the signed saturating conversion unchanged.
    const auto extended = hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(d32s, result)));
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(d16s, extended)), d16,
               reinterpret_cast<uint16_t*>(to));
  }
};

template <>
struct Lanes<float16> {
  using Accumulator = float;
#if HWY_TARGET <= HWY_AVX2  // has the conversion instructions (which round as MXCSR says: to even)
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const float16* from) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> value, float16* to) {
    const hn::Rebind<hwy::float16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, value), d16, reinterpret_cast<hwy::float16_t*>(to));
    (void)d;
  }
#else  // Highway's emulation truncates.
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const float16* from) {
    HWY_ALIGN float values[hn::MaxLanes(d)];
    for (size_t i = 0; i < hn::Lanes(d); ++i) values[i] = ToFloat(from[i]);
    return hn::Load(d, values);
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> value, float16* to) {
    HWY_ALIGN float values[hn::MaxLanes(d)];
    hn::Store(value, d, values);
    for (size_t i = 0; i < hn::Lanes(d); ++i) to[i] = ToFloat16(values[i]);
  }
#endif
};

// ---- Operations ----

struct SumOp {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::Add(a, b);
  }
};
struct ProductOp {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::Mul(a, b);
  }
};
// By comparison: the instructions for minimum and maximum differ between processors in what they do
// with zeros of both signs and with NaN.
struct MinOp {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Lt(b, a), IsNan(b)), b, a);
  }
};
struct MaxOp {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Gt(b, a), IsNan(b)), b, a);
  }
};

// ---- The loop ----

enum class Scaling { kNone, kAverage, kFactor };

template <class Op, typename T, Scaling kScaling>
void ReduceFloats(absl::Span<const void* const> sources, int64_t count, void* destination,
                  double factor) {
  using A = typename Lanes<T>::Accumulator;
  const hn::ScalableTag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale =
      hn::Set(d, kScaling == Scaling::kFactor ? static_cast<A>(factor)
                                              : static_cast<A>(1) / static_cast<A>(sources.size()));
  T* to = static_cast<T*>(destination);
  const auto fetch = [&](const T* from) {
    auto value = Lanes<T>::Load(d, from);
    if constexpr (kScaling == Scaling::kFactor) value = hn::Mul(value, scale);
    return value;
  };
  const auto combine = [&](int64_t at) {
    auto sum = fetch(static_cast<const T*>(sources[0]) + at);
    for (size_t s = 1; s < sources.size(); ++s) {
      sum = Op::Apply(sum, fetch(static_cast<const T*>(sources[s]) + at));
    }
    return sum;
  };
  const auto finish = [&](auto value) {
    if constexpr (kScaling == Scaling::kAverage) value = hn::Mul(value, scale);
    return value;
  };
  int64_t i = 0;
  if (sources.size() == 2) {  // worth its own loop: the pointers stay in registers
    const T* a = static_cast<const T*>(sources[0]);
    const T* b = static_cast<const T*>(sources[1]);
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      const auto x = Op::Apply(fetch(a + i), fetch(b + i));
      const auto y = Op::Apply(fetch(a + i + lanes), fetch(b + i + lanes));
      Lanes<T>::Store(d, finish(x), to + i);
      Lanes<T>::Store(d, finish(y), to + i + lanes);
    }
  }
  for (; i + lanes <= count; i += lanes) {
    Lanes<T>::Store(d, finish(combine(i)), to + i);
  }
  if (i == count) return;
  // The tail runs through the same instructions on padded copies.
  const size_t rest = static_cast<size_t>(count - i) * sizeof(T);
  alignas(64) T padded[64 / sizeof(T)] = {};
  const auto load = [&](size_t s) {
    std::memcpy(padded, static_cast<const T*>(sources[s]) + i, rest);
    return fetch(padded);
  };
  auto sum = load(0);
  for (size_t s = 1; s < sources.size(); ++s) sum = Op::Apply(sum, load(s));
  Lanes<T>::Store(d, finish(sum), padded);
  std::memcpy(to + i, padded, rest);
}

template <typename T>
void ReduceFloatsBy(ReduceOp op, absl::Span<const void* const> sources, int64_t count,
                    void* destination, double factor) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceFloats<SumOp, T, Scaling::kNone>(sources, count, destination, factor);
    case ReduceOp::kAverage:
      return ReduceFloats<SumOp, T, Scaling::kAverage>(sources, count, destination, factor);
    case ReduceOp::kProduct:
      return ReduceFloats<ProductOp, T, Scaling::kNone>(sources, count, destination, factor);
    case ReduceOp::kMin:
      return ReduceFloats<MinOp, T, Scaling::kNone>(sources, count, destination, factor);
    case ReduceOp::kMax:
      return ReduceFloats<MaxOp, T, Scaling::kNone>(sources, count, destination, factor);
    case ReduceOp::kPreMultipliedSum:
      return ReduceFloats<SumOp, T, Scaling::kFactor>(sources, count, destination, factor);
    default:
      return;  // bitwise: refused by CheckReduceOp
  }
}

void ReduceFloatingPoint(ReduceOp op, DType dtype, absl::Span<const void* const> sources,
                         int64_t count, void* destination, double factor) {
  switch (dtype) {
    case DType::kFloat32:
      return ReduceFloatsBy<float>(op, sources, count, destination, factor);
    case DType::kFloat64:
      return ReduceFloatsBy<double>(op, sources, count, destination, factor);
    case DType::kBFloat16:
      return ReduceFloatsBy<bfloat16>(op, sources, count, destination, factor);
    case DType::kFloat16:
      return ReduceFloatsBy<float16>(op, sources, count, destination, factor);
    default:
      return;
  }
}

// Non-temporal stores of whole 64-byte lines; both pointers may have any alignment.
void StreamBytes(void* destination, const void* source, int64_t bytes) {
#if HWY_TARGET == HWY_SCALAR
  std::memcpy(destination, source, static_cast<size_t>(bytes));
#else
  const hn::ScalableTag<uint8_t> d;
  constexpr int64_t kLine = 64;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto* to = static_cast<uint8_t*>(destination);
  const auto* from = static_cast<const uint8_t*>(source);
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLine);
  int64_t i = std::min(bytes, (kLine - misaligned) % kLine);
  std::memcpy(to, from, static_cast<size_t>(i));
  for (; i + kLine <= bytes; i += kLine) {
    for (int64_t j = i; j < i + kLine; j += lanes) hn::Stream(hn::LoadU(d, from + j), d, to + j);
  }
  hwy::FlushStream();
  std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::comm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::comm {
namespace {

HWY_EXPORT(ReduceFloatingPoint);
HWY_EXPORT(StreamBytes);

// Integers and bool. Sums and products wrap: computed unsigned.
template <typename T, typename Op>
void ReduceIntegers(absl::Span<const void* const> sources, int64_t count, void* destination,
                    const Op& op) {
  constexpr int64_t kBlock = 1024;
  T sum[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    std::memcpy(sum, static_cast<const T*>(sources[0]) + begin, static_cast<size_t>(n) * sizeof(T));
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* source = static_cast<const T*>(sources[s]) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] = op(sum[i], source[i]);
    }
    std::memcpy(static_cast<T*>(destination) + begin, sum, static_cast<size_t>(n) * sizeof(T));
  }
}

template <typename T>
void ReduceIntegersBy(ReduceOp op, absl::Span<const void* const> sources, int64_t count,
                      void* destination) {
  const auto run = [&](auto f) { ReduceIntegers<T>(sources, count, destination, f); };
  // uint8 and smaller are promoted to int by the language; the cast back wraps.
  using U = std::conditional_t<(sizeof(T) < 4), unsigned, std::make_unsigned_t<T>>;
  switch (op) {
    case ReduceOp::kSum:
      return run([](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); });
    case ReduceOp::kProduct:
      return run([](T a, T b) { return static_cast<T>(static_cast<U>(a) * static_cast<U>(b)); });
    case ReduceOp::kMin:
      return run([](T a, T b) { return b < a ? b : a; });
    case ReduceOp::kMax:
      return run([](T a, T b) { return b > a ? b : a; });
    case ReduceOp::kBitAnd:
      return run([](T a, T b) { return static_cast<T>(a & b); });
    case ReduceOp::kBitOr:
      return run([](T a, T b) { return static_cast<T>(a | b); });
    case ReduceOp::kBitXor:
      return run([](T a, T b) { return static_cast<T>(a ^ b); });
    case ReduceOp::kAverage:
    case ReduceOp::kPreMultipliedSum:
      return;  // refused by CheckReduceOp
  }
}

// bool is one byte, 0 or 1, so that logic is bitwise logic.
ReduceOp BoolOp(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
      return ReduceOp::kBitOr;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
      return ReduceOp::kBitAnd;
    default:
      return op;
  }
}

}  // namespace

void ReduceElements(ReduceOp op, DType dtype, absl::Span<const void* const> sources, int64_t count,
                    void* destination, double factor) {
  if (count == 0) return;
  switch (dtype) {
    case DType::kInt64:
      return ReduceIntegersBy<int64_t>(op, sources, count, destination);
    case DType::kInt32:
      return ReduceIntegersBy<int32_t>(op, sources, count, destination);
    case DType::kUInt8:
      return ReduceIntegersBy<uint8_t>(op, sources, count, destination);
    case DType::kBool:
      return ReduceIntegersBy<uint8_t>(BoolOp(op), sources, count, destination);
    default:
      return HWY_DYNAMIC_DISPATCH(ReduceFloatingPoint)(op, dtype, sources, count, destination,
                                                       factor);
  }
}

void CopyBytes(void* destination, const void* source, int64_t bytes) {
  constexpr int64_t kStreamFromBytes = 256 << 10;
  if (bytes >= kStreamFromBytes) {
    HWY_DYNAMIC_DISPATCH(StreamBytes)(destination, source, bytes);
  } else if (bytes > 0) {
    std::memcpy(destination, source, static_cast<size_t>(bytes));
  }
}

}  // namespace lockstep::comm
#endif  // HWY_ONCE
