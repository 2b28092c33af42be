// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/dtype.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::array<absl::string_view, kDTypeCount> kNames = {
    "float32", "bfloat16", "float16", "float64", "int64", "int32", "uint8", "bool"};

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

float16 ToFloat16(float value) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  constexpr uint32_t kTooLarge = 0x47800000u;        // 2^16
  constexpr uint32_t kSmallestNormal = 0x38800000u;  // 2^-14
  constexpr uint32_t kRebias = (127u - 15u) << 23;

  const uint32_t bits = BitsOf(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t result;
  if (magnitude > kInfinity) {
    result = 0x7e00u | ((magnitude >> 13) & 0x3ffu);  // quiet, with what fits of the payload
  } else if (magnitude >= kTooLarge) {
    result = 0x7c00u;
  } else if (magnitude >= kSmallestNormal) {
    // A carry out of the fraction moves into the exponent, and from 65504 on into infinity.
    result = (magnitude - kRebias + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {
    // The spacing of float just above 0.5 is 2^-24, the spacing of float16's denormals: the
    // addition rounds to it, and the low bits of the sum are the denormal.
    result = BitsOf(FromBits(magnitude) + 0.5f) - BitsOf(0.5f);
  }
  return float16{static_cast<uint16_t>(sign | result)};
}

float ToFloat(float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const uint32_t fraction = value.bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return FromBits(sign | BitsOf(magnitude));
  }
  if (exponent == 31) return FromBits(sign | 0x7f800000u | (fraction << 13));
  return FromBits(sign | ((exponent + 127 - 15) << 23) | (fraction << 13));
}

absl::string_view DTypeName(DType dtype) {
  const size_t index = static_cast<size_t>(dtype);
  return index < kNames.size() ? kNames[index] : "invalid";
}

DType ParseDType(absl::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    throw InvalidArgumentError(absl::StrCat("ParseDType: unknown dtype '", name, "'; use one of ",
                                            absl::StrJoin(kNames, ", ")));
  }
  return static_cast<DType>(found - kNames.begin());
}

DType PromoteTypes(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  if (IsFloatingPoint(a) != IsFloatingPoint(b)) return IsFloatingPoint(a) ? a : b;
  // Two different 16-bit formats: neither holds the other.
  if (IsReducedFloat(a) && IsReducedFloat(b)) return DType::kFloat32;
  return ItemSize(a) > ItemSize(b) ? a : b;
}

DType PromoteWithScalar(DType dtype, const Scalar& scalar) {
  switch (scalar.kind()) {
    case Scalar::Kind::kDouble:
      return IsFloatingPoint(dtype) ? dtype : DType::kFloat32;
    case Scalar::Kind::kInt64:
      return dtype == DType::kBool ? DType::kInt64 : dtype;
    case Scalar::Kind::kBool:
      break;
  }
  return dtype;
}

DType DefaultDType(const Scalar& scalar) {
  switch (scalar.kind()) {
    case Scalar::Kind::kDouble:
      return DType::kFloat32;
    case Scalar::Kind::kInt64:
      return DType::kInt64;
    case Scalar::Kind::kBool:
      break;
  }
  return DType::kBool;
}

}  // namespace lockstep
