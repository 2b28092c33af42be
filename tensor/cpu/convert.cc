// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/cpu/convert.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/convert.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

template <typename From, typename To>
void ConvertRows(const From* in, const RowLayout& layout, To* out) {
  for (int64_t i = 0; i < layout.rows; ++i) {
    Transform(
        hn::ScalableTag<float>(), static_cast<size_t>(layout.cols), out + i * layout.out_stride,
        [](auto v) HWY_ATTR { return v; }, in + i * layout.in_stride);
  }
}

void WidenBFloat16(const bfloat16* in, const RowLayout& layout, float* out) {
  ConvertRows(in, layout, out);
}
void WidenFloat16(const float16* in, const RowLayout& layout, float* out) {
  ConvertRows(in, layout, out);
}
void NarrowBFloat16(const float* in, const RowLayout& layout, bfloat16* out) {
  ConvertRows(in, layout, out);
}
void NarrowFloat16(const float* in, const RowLayout& layout, float16* out) {
  ConvertRows(in, layout, out);
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(WidenBFloat16);
HWY_EXPORT(WidenFloat16);
HWY_EXPORT(NarrowBFloat16);
HWY_EXPORT(NarrowFloat16);

// 16-bit floats pass through float32, this many at a time.
constexpr int64_t kBlock = 512;

template <typename To, typename From>
To SaturatingCast(From value) {
  if (value != value) return 0;
  // The bounds are exact in double; the upper one of int64 is the first value beyond it.
  if (static_cast<double>(value) >= -static_cast<double>(std::numeric_limits<To>::min())) {
    return std::numeric_limits<To>::max();
  }
  if (static_cast<double>(value) <= static_cast<double>(std::numeric_limits<To>::min())) {
    return std::numeric_limits<To>::min();
  }
  return static_cast<To>(value);
}

template <typename To, typename From>
To ConvertOne(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_same_v<To, uint8_t>) {
    return static_cast<uint8_t>(SaturatingCast<int64_t>(value));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return SaturatingCast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <typename From, typename To>
void ConvertPlain(int64_t count, const void* in, void* out) {
  // A bool is read as its byte: 0 is false, and nothing else is assumed about it.
  using Read = std::conditional_t<std::is_same_v<From, bool>, uint8_t, From>;
  const Read* source = static_cast<const Read*>(in);
  To* target = static_cast<To*>(out);
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<From, bool>) {
      target[i] = static_cast<To>(source[i] != 0);
    } else {
      target[i] = ConvertOne<To>(source[i]);
    }
  }
}

void WidenTo32(DType from, int64_t count, const void* in, float* out) {
  if (from == DType::kBFloat16) {
    BFloat16ToFloat(static_cast<const bfloat16*>(in), count, out);
  } else {
    Float16ToFloat(static_cast<const float16*>(in), count, out);
  }
}

void NarrowFrom32(DType to, int64_t count, const float* in, void* out) {
  if (to == DType::kBFloat16) {
    FloatToBFloat16(in, count, static_cast<bfloat16*>(out));
  } else {
    FloatToFloat16(in, count, static_cast<float16*>(out));
  }
}

// Between 16-bit floats and anything else, by way of float32.
void ConvertReduced(DType from, DType to, int64_t count, const void* in, void* out) {
  if (IsReducedFloat(from) && to == DType::kFloat32) {
    return WidenTo32(from, count, in, static_cast<float*>(out));
  }
  if (from == DType::kFloat32) {
    return NarrowFrom32(to, count, static_cast<const float*>(in), out);
  }
  alignas(64) float block[kBlock];
  const char* source = static_cast<const char*>(in);
  char* target = static_cast<char*>(out);
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    ConvertElements(from, DType::kFloat32, n, source + i * ItemSize(from), block);
    ConvertElements(DType::kFloat32, to, n, block, target + i * ItemSize(to));
  }
}

template <typename T>
inline constexpr bool kReduced = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

}  // namespace

void BFloat16ToFloat(const bfloat16* in, const RowLayout& layout, float* out) {
  HWY_DYNAMIC_DISPATCH(WidenBFloat16)(in, layout, out);
}
void FloatToBFloat16(const float* in, const RowLayout& layout, bfloat16* out) {
  HWY_DYNAMIC_DISPATCH(NarrowBFloat16)(in, layout, out);
}
void Float16ToFloat(const float16* in, const RowLayout& layout, float* out) {
  HWY_DYNAMIC_DISPATCH(WidenFloat16)(in, layout, out);
}
void FloatToFloat16(const float* in, const RowLayout& layout, float16* out) {
  HWY_DYNAMIC_DISPATCH(NarrowFloat16)(in, layout, out);
}

void BFloat16ToFloat(const bfloat16* in, int64_t count, float* out) {
  BFloat16ToFloat(in, {.rows = 1, .cols = count}, out);
}
void FloatToBFloat16(const float* in, int64_t count, bfloat16* out) {
  FloatToBFloat16(in, {.rows = 1, .cols = count}, out);
}
void Float16ToFloat(const float16* in, int64_t count, float* out) {
  Float16ToFloat(in, {.rows = 1, .cols = count}, out);
}
void FloatToFloat16(const float* in, int64_t count, float16* out) {
  FloatToFloat16(in, {.rows = 1, .cols = count}, out);
}

void ConvertElements(DType from, DType to, int64_t count, const void* in, void* out) {
  if (count == 0) return;
  if (from == to) {
    std::memcpy(out, in, static_cast<size_t>(count * ItemSize(from)));
    return;
  }
  if (IsReducedFloat(from) || IsReducedFloat(to)) {
    return ConvertReduced(from, to, count, in, out);
  }
  VisitDType(from, [&]<typename From>(TypeTag<From>) {
    VisitDType(to, [&]<typename To>(TypeTag<To>) {
      if constexpr (!kReduced<From> && !kReduced<To>) ConvertPlain<From, To>(count, in, out);
    });
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
