// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tests/parity/ops/inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::parity {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// A short fraction times this uses 52 bits: float64 inputs are not float32 numbers.
constexpr double kStretch = 1 + 0x1p-28;

[[noreturn]] void RefuseProfile(const std::string& profile, DType dtype) {
  throw InvalidArgumentError(
      absl::StrCat("DrawInput: no profile ", profile, " of ", DTypeName(dtype)));
}

struct Format {
  int low, high;  // exponents of normal numbers
  int bits;       // of the fraction
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return {-1022, 1023, 52};
    case DType::kFloat16:
      return {-14, 15, 10};
    case DType::kBFloat16:
      return {-126, 127, 7};
    default:
      return {-126, 127, 23};
  }
}

std::vector<double> SpecialFloats(DType dtype) {
  const Format format = FormatOf(dtype);
  const double normal = std::ldexp(1.0, format.low);
  const double denormal = std::ldexp(1.0, format.low - format.bits);
  const double largest = std::ldexp(2 - std::ldexp(1.0, -format.bits), format.high);
  return {kNaN,   kInfinity, -kInfinity, 0.0, -0.0, denormal, -denormal, normal - denormal,
          normal, largest,   -largest,   1.0, -1.0};
}

std::vector<int64_t> SpecialIntegers(DType dtype) {
  switch (dtype) {
    case DType::kInt64:
      return {0, 1, -1, INT64_MAX, INT64_MIN, 7, -7};
    case DType::kInt32:
      return {0, 1, -1, INT32_MAX, INT32_MIN, 7, -7};
    case DType::kUInt8:
      return {0, 1, 255, 0, 7, 2};
    default:
      return {0, 1, 1, 0, 7, 2};
  }
}

double WideNumber(double u, DType dtype) {
  const Format format = FormatOf(dtype);
  const auto word = static_cast<int64_t>(u * 0x1p24);
  const int64_t exponent = format.low + ((word >> 1) % 1024) * (format.high - format.low) / 1024;
  const double magnitude =
      std::ldexp(1 + static_cast<double>(word >> 11) * 0x1p-13, static_cast<int>(exponent));
  return word % 2 == 1 ? -magnitude : magnitude;
}

double FloatOf(const std::string& profile, double u, size_t i, DType dtype) {
  if (profile == "unit") return (4 * u - 2) * kStretch;
  if (profile == "positive") return (3 * u + 0.25) * kStretch;
  if (profile == "grid") return std::floor(7 * u) - 3;
  if (profile == "small") return std::floor(4 * u);
  if (profile == "wide") return WideNumber(u, dtype);
  if (profile == "nonfinite") {
    const double choice[] = {kNaN, kInfinity, -kInfinity};
    return i % 7 == 3 ? choice[i / 7 % 3] : (4 * u - 2) * kStretch;
  }
  if (profile == "each") {
    const std::vector<double> special = SpecialFloats(dtype);
    return special[i % special.size()];
  }
  RefuseProfile(profile, dtype);
}

int64_t IntegerOf(const std::string& profile, double u, size_t i, DType dtype) {
  const auto floor = [](double x) { return static_cast<int64_t>(std::floor(x)); };
  const bool is_unsigned = dtype == DType::kUInt8;
  if (profile == "each") {
    const std::vector<int64_t> special = SpecialIntegers(dtype);
    return special[i % special.size()];
  }
  if (profile == "first_column") return i % 6 == 0 || u < 0.5;
  if (dtype == DType::kBool) return u < 0.5;
  if (profile == "unit") return floor(is_unsigned ? 10 * u : 19 * u - 9);
  if (profile == "positive") return floor(5 * u + 1);
  if (profile == "grid") return floor(is_unsigned ? 4 * u : 7 * u - 3);
  if (profile == "small") return floor(4 * u);
  int64_t count = 0;
  if (absl::StartsWith(profile, "index:") && absl::SimpleAtoi(profile.substr(6), &count)) {
    return floor(static_cast<double>(count) * u);
  }
  RefuseProfile(profile, dtype);
}

}  // namespace

Tensor DrawInput(const std::string& profile, const Shape& shape, DType dtype, uint64_t seed,
                 uint64_t stream) {
  Generator generator{{seed, stream, 0}};
  const std::vector<double> uniform =
      RandomUniform(shape, 0, 1, {&generator, {DType::kFloat32, {}}}).ToVector<double>();
  if (!IsFloatingPoint(dtype)) {
    std::vector<int64_t> values(uniform.size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = IntegerOf(profile, uniform[i], i, dtype);
    return To(FromVector<int64_t>(values, shape), dtype);
  }
  std::vector<double> values(uniform.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = FloatOf(profile, uniform[i], i, dtype);
  const Tensor exact = FromVector<double>(values, shape);
  return dtype == DType::kFloat64 ? exact : To(To(exact, DType::kFloat32), dtype);
}

Shape StoredShape(const Shape& shape, const std::string& layout) {
  Shape stored = shape;
  const size_t rank = stored.size();
  if (layout == "transposed") std::swap(stored[rank - 1], stored[rank - 2]);
  if (layout == "reversed") std::reverse(stored.begin(), stored.end());
  if (layout == "sliced") stored[rank - 1] = 2 * stored[rank - 1] + 1;
  if (layout == "offset") stored[0] += 2;
  if (layout == "expanded") stored[0] = 1;
  return stored;
}

Tensor ViewAs(const Tensor& stored, const Shape& shape, const std::string& layout) {
  if (layout == "transposed") return Transpose(stored, -1, -2);
  if (layout == "sliced") return Slice(stored, -1, 1, INT64_MAX, 2);
  if (layout == "offset") return Slice(stored, 0, 2);
  if (layout == "expanded") return Expand(stored, shape);
  if (layout == "dense") return stored;
  if (layout != "reversed") throw InvalidArgumentError(absl::StrCat("ViewAs: no layout ", layout));
  Shape dims(shape.size());
  for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(dims.size() - 1 - d);
  return Permute(stored, dims);
}

}  // namespace lockstep::parity
