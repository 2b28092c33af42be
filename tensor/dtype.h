// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Element types: the DType enum, the C++ type of each, PyTorch's promotion rules, and Scalar, a
// number that is not yet an element of a tensor.
//
//   VisitDType(tensor.dtype(), [&]<typename T>(TypeTag<T>) { Fill<T>(...); });
#ifndef LOCKSTEP_TENSOR_DTYPE_H_
#define LOCKSTEP_TENSOR_DTYPE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"

namespace lockstep {

// Values are written to caches and messages between processes: never renumber.
enum class DType : uint8_t {
  kFloat32 = 0,
  kBFloat16 = 1,
  kFloat16 = 2,
  kFloat64 = 3,
  kInt64 = 4,
  kInt32 = 5,
  kUInt8 = 6,
  kBool = 7,
};
inline constexpr int kDTypeCount = 8;

// 16-bit floating types: storage only. Arithmetic goes through float.
struct bfloat16 {
  uint16_t bits = 0;
};
struct float16 {
  uint16_t bits = 0;
};

// Round to nearest even; a NaN stays a NaN.
inline bfloat16 ToBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bfloat16{static_cast<uint16_t>((bits >> 16) | 64)};
  return bfloat16{static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16)};
}
inline float ToFloat(bfloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}
float16 ToFloat16(float value);
float ToFloat(float16 value);

template <typename T>
struct TypeTag {
  using type = T;
};

template <typename T>
struct DTypeTraits;
template <>
struct DTypeTraits<float> {
  static constexpr DType kDType = DType::kFloat32;
};
template <>
struct DTypeTraits<bfloat16> {
  static constexpr DType kDType = DType::kBFloat16;
};
template <>
struct DTypeTraits<float16> {
  static constexpr DType kDType = DType::kFloat16;
};
template <>
struct DTypeTraits<double> {
  static constexpr DType kDType = DType::kFloat64;
};
template <>
struct DTypeTraits<int64_t> {
  static constexpr DType kDType = DType::kInt64;
};
template <>
struct DTypeTraits<int32_t> {
  static constexpr DType kDType = DType::kInt32;
};
template <>
struct DTypeTraits<uint8_t> {
  static constexpr DType kDType = DType::kUInt8;
};
template <>
struct DTypeTraits<bool> {
  static constexpr DType kDType = DType::kBool;
};

template <typename T>
inline constexpr DType kDTypeOf = DTypeTraits<T>::kDType;

// Bytes of one element.
constexpr int64_t ItemSize(DType dtype) {
  constexpr int8_t kItemSizes[kDTypeCount] = {4, 2, 2, 8, 8, 4, 1, 1};
  return kItemSizes[static_cast<int>(dtype)];
}

constexpr bool IsFloatingPoint(DType dtype) { return dtype <= DType::kFloat64; }
constexpr bool IsReducedFloat(DType dtype) {
  return dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}
constexpr bool IsIntegral(DType dtype) {  // bool is not integral
  return dtype == DType::kInt64 || dtype == DType::kInt32 || dtype == DType::kUInt8;
}

// "float32", "bfloat16", ...
absl::string_view DTypeName(DType dtype);
// Throws InvalidArgument listing the names.
DType ParseDType(absl::string_view name);

// The dtype of an operation over `a` and `b`, both tensors with dimensions: PyTorch's
// torch.promote_types (bfloat16 with float16 gives float32; any float beats any integer).
DType PromoteTypes(DType a, DType b);

// Calls `visitor(TypeTag<T>{})` with the C++ type of `dtype`.
template <typename Visitor>
decltype(auto) VisitDType(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::kFloat32:
      return visitor(TypeTag<float>{});
    case DType::kBFloat16:
      return visitor(TypeTag<bfloat16>{});
    case DType::kFloat16:
      return visitor(TypeTag<float16>{});
    case DType::kFloat64:
      return visitor(TypeTag<double>{});
    case DType::kInt64:
      return visitor(TypeTag<int64_t>{});
    case DType::kInt32:
      return visitor(TypeTag<int32_t>{});
    case DType::kUInt8:
      return visitor(TypeTag<uint8_t>{});
    case DType::kBool:
      break;
  }
  return visitor(TypeTag<bool>{});
}

// A number given by the caller: double, int64 or bool. As an operand it takes part in promotion
// by kind only (PyTorch's rule for Python numbers): an int tensor with a double scalar gives
// float32, a bfloat16 tensor with any scalar stays bfloat16.
class Scalar {
 public:
  enum class Kind : uint8_t { kDouble, kInt64, kBool };

  constexpr Scalar() : int_(0), kind_(Kind::kInt64) {}
  constexpr Scalar(double value) : double_(value), kind_(Kind::kDouble) {}  // NOLINT
  constexpr Scalar(float value) : Scalar(static_cast<double>(value)) {}     // NOLINT
  constexpr Scalar(bool value) : int_(value), kind_(Kind::kBool) {}         // NOLINT
  template <typename I,
            std::enable_if_t<std::is_integral_v<I> && !std::is_same_v<I, bool>, int> = 0>
  constexpr Scalar(I value) : int_(static_cast<int64_t>(value)), kind_(Kind::kInt64) {}  // NOLINT

  constexpr Kind kind() const { return kind_; }
  constexpr double AsDouble() const {
    return kind_ == Kind::kDouble ? double_ : static_cast<double>(int_);
  }
  // A double is truncated toward zero; out-of-range doubles saturate.
  constexpr int64_t AsInt64() const {
    if (kind_ != Kind::kDouble) return int_;
    if (double_ >= 9223372036854775807.0) return INT64_MAX;
    if (double_ <= -9223372036854775808.0) return INT64_MIN;
    return double_ != double_ ? 0 : static_cast<int64_t>(double_);
  }
  constexpr uint64_t AsUInt64() const { return static_cast<uint64_t>(AsInt64()); }
  constexpr bool AsBool() const { return kind_ == Kind::kDouble ? double_ != 0 : int_ != 0; }

 private:
  union {
    double double_;
    int64_t int_;
  };
  Kind kind_;
};

// The dtype of a tensor of `dtype` combined with `scalar`.
DType PromoteWithScalar(DType dtype, const Scalar& scalar);

// The dtype a scalar has alone: float32, int64 or bool.
DType DefaultDType(const Scalar& scalar);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_DTYPE_H_
