// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tests/parity/ops/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/tests/parity/goldens.h"

namespace lockstep::parity {
namespace {

struct Tolerance {
  double element;   // of the element
  double one;       // of 1, beside `element`: Near::kOne, and each term of a gradient
  double sum;       // of the largest element
  double denormal;  // the spacing of the smallest numbers: what cannot be nearer
  double gradient;  // times all these, of gradients: in 16 bits their formulas round twice and more
};

const Tolerance& ToleranceOf(DType dtype) {
  static const auto& table = *[] {
    auto* const rows = new std::map<DType, Tolerance>;
    const nlohmann::json file = ReadGoldens("tests/parity/ops/tolerances.json");
    for (const auto& [name, row] : file.items()) {
      (*rows)[ParseDType(name)] = {row["element"], row["one"], row["sum"], row["denormal"],
                                   row["gradient"]};
    }
    return rows;
  }();
  return table.at(dtype);
}

double LargestFinite(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// How many times the allowed distance; above 1 is too far.
double Excess(double actual, double expected, double allowed, bool signed_zero) {
  if (std::isnan(expected) || std::isnan(actual)) {
    return std::isnan(expected) && std::isnan(actual) ? 0 : HUGE_VAL;
  }
  if (actual == expected) {
    const bool sign_differs = std::signbit(actual) != std::signbit(expected);
    return signed_zero && actual == 0 && sign_differs ? HUGE_VAL : 0;
  }
  if (std::isinf(actual) || std::isinf(expected) || allowed == 0) return HUGE_VAL;
  return std::abs(actual - expected) / allowed;
}

// What a comparison allows.
struct Rule {
  Near near = Near::kElement;
  bool gradient = false;
  double ones = 0;    // times Tolerance::one
  double factor = 1;  // times the whole
};

double Allowed(const Tolerance& tolerance, const Rule& rule, double expected, double largest) {
  const bool exact = rule.near == Near::kExact || rule.near == Near::kValue;
  if (exact && !rule.gradient) return 0;
  double allowed = tolerance.element * std::abs(expected) + tolerance.denormal;
  if (rule.near == Near::kSum) allowed = std::max(allowed, tolerance.sum * largest);
  return rule.factor * (allowed + rule.ones * tolerance.one);
}

std::string FloatDifference(const std::vector<double>& actual, const Golden& golden,
                            const Rule& rule) {
  const Tolerance& tolerance = ToleranceOf(golden.dtype);
  const double largest = LargestFinite(golden.floats);
  const bool signed_zero =
      !rule.gradient && (rule.near == Near::kExact || rule.near == Near::kElement);
  double worst = 0;
  size_t worst_at = 0, count = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double expected = golden.floats[i];
    const double allowed = Allowed(tolerance, rule, expected, largest);
    double excess = Excess(actual[i], expected, allowed, signed_zero);
    if (excess > 1 && !golden.own.empty()) {
      excess = std::min(excess, Excess(actual[i], golden.own[i], 0, false));
    }
    if (excess > 1) ++count;
    if (excess > worst) worst = excess, worst_at = i;
  }
  if (count == 0) return "";
  return absl::StrFormat(
      "%d of %d elements differ; worst: element %d is %.17g, PyTorch's %.17g (%g times what is "
      "allowed)",
      count, actual.size(), worst_at, actual[worst_at], golden.floats[worst_at], worst);
}

std::string IntegerDifference(const std::vector<int64_t>& actual, const Golden& golden) {
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] != golden.integers[i]) {
      return absl::StrCat("element ", i, " is ", actual[i], ", PyTorch's ", golden.integers[i]);
    }
  }
  return "";
}

std::string Difference(const Tensor& actual, const Golden& golden, const Rule& rule) {
  if (actual.dtype() != golden.dtype) {
    return absl::StrCat("dtype is ", DTypeName(actual.dtype()), ", PyTorch's ",
                        DTypeName(golden.dtype));
  }
  if (actual.numel() != static_cast<int64_t>(golden.size())) {
    return absl::StrCat(actual.numel(), " elements, PyTorch has ", golden.size());
  }
  return IsFloatingPoint(golden.dtype) ? FloatDifference(actual.ToVector<double>(), golden, rule)
                                       : IntegerDifference(actual.ToVector<int64_t>(), golden);
}

}  // namespace

std::string OutputDifference(const Tensor& actual, const Golden& golden, Near near) {
  return Difference(actual, golden, {.near = near, .ones = near == Near::kOne ? 1.0 : 0.0});
}

std::string GradientDifference(const Tensor& actual, const Golden& golden, Near near,
                               int64_t terms) {
  const double factor =
      std::max(ToleranceOf(golden.dtype).gradient, golden.slack > 1 ? 2 * golden.slack : 1);
  return Difference(
      actual, golden,
      {.near = near, .gradient = true, .ones = static_cast<double>(terms), .factor = factor});
}

}  // namespace lockstep::parity
