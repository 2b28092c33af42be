// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/vector_math_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/activations-inl.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"
#include "lockstep/tensor/cpu/vector_math-inl.h"

// One line a function: X(name).
// clang-format off
#define LOCKSTEP_TESTED_FUNCTIONS(X) \
  X(Exp) \
  X(ExpOfNonPositive) \
  X(ExpOfNonPositiveOrZero) \
  X(Exp2) \
  X(Expm1) \
  X(Log) \
  X(Log1p) \
  X(Tanh) \
  X(Erf) \
  X(Sqrt) \
  X(Rsqrt) \
  X(Sin) \
  X(Cos) \
  X(Sigmoid) \
  X(GeluTanh) \
  X(GeluTanhDerivative) \
  X(GeluErf) \
  X(GeluErfDerivative)
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

template <typename T>
void RunPow(const T* x, const T* y, T* to, size_t count) {
  const hn::ScalableTag<T> d;
  Transform(
      d, count, to, [&](auto a, auto b) HWY_ATTR { return Pow(d, a, b); }, x, y);
}
void PowFloat(const float* x, const float* y, float* to, size_t n) { RunPow(x, y, to, n); }
void PowDouble(const double* x, const double* y, double* to, size_t n) { RunPow(x, y, to, n); }

#define LOCKSTEP_DEFINE(name)                                                                  \
  template <typename T>                                                                        \
  void Run##name(const T* from, T* to, size_t count) {                                         \
    const hn::ScalableTag<T> d;                                                                \
    Transform(                                                                                 \
        d, count, to, [&](auto x) HWY_ATTR { return name(d, x); }, from);                      \
  }                                                                                            \
  void name##Float(const float* from, float* to, size_t count) { Run##name(from, to, count); } \
  void name##Double(const double* from, double* to, size_t count) { Run##name(from, to, count); }
LOCKSTEP_TESTED_FUNCTIONS(LOCKSTEP_DEFINE)
#undef LOCKSTEP_DEFINE

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace lockstep::cpu {

#define LOCKSTEP_EXPORT(name) \
  HWY_EXPORT(name##Float);    \
  HWY_EXPORT(name##Double);
LOCKSTEP_TESTED_FUNCTIONS(LOCKSTEP_EXPORT)
LOCKSTEP_EXPORT(Pow)
#undef LOCKSTEP_EXPORT

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using FloatFunction = void (*)(const float*, float*, size_t);
using DoubleFunction = void (*)(const double*, double*, size_t);

// ---- References, in double and without cancellation.

double Sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}
double TanhArgument(double x) { return 0.79788456080286535588 * (x + 0.044715 * x * x * x); }
double GeluTanh(double x) { return x * Sigmoid(2 * TanhArgument(x)); }
double GeluTanhDerivative(double x) {
  if (std::abs(x) > 1e3) return x > 0 ? 1 : 0;
  const double u = TanhArgument(x);
  const double slope = 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
  return Sigmoid(2 * u) + 2 * x * slope * Sigmoid(2 * u) * Sigmoid(-2 * u);
}
double NormalCdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }
double GeluErf(double x) { return x * NormalCdf(x); }
double GeluErfDerivative(double x) {
  if (std::abs(x) > 1e3) return x > 0 ? 1 : 0;
  return NormalCdf(x) + x * 0.39894228040143267794 * std::exp(-0.5 * x * x);
}
double Rsqrt(double x) { return 1 / std::sqrt(x); }

struct Tested {
  std::string name;
  FloatFunction float_function;
  DoubleFunction double_function;
  double (*reference)(double);
  // Largest error of float lanes: in units in the last place of the result, plus absolute.
  double ulps;
  double absolute;
  // Largest relative and absolute error of double lanes; 0: the same bits as the reference.
  double double_relative;
  double double_absolute;
  double lowest;  // Arguments outside [lowest, highest] are not tested.
  double highest;
};

#define LOCKSTEP_ROW(name) \
#name, HWY_DYNAMIC_DISPATCH(name##Float), HWY_DYNAMIC_DISPATCH(name##Double)

// Chosen anew in each test, because HWY_DYNAMIC_DISPATCH reads the instruction set in force.
std::vector<Tested> TestedFunctions() {
  return {
      {LOCKSTEP_ROW(Exp), std::exp, 1.1, 0, 0, 0, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(ExpOfNonPositive), std::exp, 1.1, 0, 0, 0, -kInfinity, 0},
      {LOCKSTEP_ROW(ExpOfNonPositiveOrZero), std::exp, 1.1, 2.4e-38, 0, 0, -kInfinity, 0},
      {LOCKSTEP_ROW(Exp2), std::exp2, 1.1, 0, 0, 0, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(Expm1), std::expm1, 1.6, 0, 0, 0, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(Log), std::log, 0.9, 0, 0, 0, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(Log1p), std::log1p, 1.6, 0, 0, 0, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(Tanh), std::tanh, 2.5, 0, 0, 0, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(Erf), std::erf, 1.2, 0, 0, 0, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(Sqrt), std::sqrt, 0.5, 0, 0, 0, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(Rsqrt), Rsqrt, 1.5, 0, 0, 0, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(Sin), std::sin, 1.0, 0, 0, 0, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(Cos), std::cos, 1.0, 0, 0, 0, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(Sigmoid), Sigmoid, 2.7, 0, 1e-15, 0, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(GeluTanh), GeluTanh, 4.0, 1e-8, 2e-15, 1e-17, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(GeluTanhDerivative), GeluTanhDerivative, 3.0, 2e-7, 1e-15, 1e-15, -kInfinity,
       kInfinity},
      {LOCKSTEP_ROW(GeluErf), GeluErf, 4.0, 4e-8, 1e-15, 1e-17, -kInfinity, kInfinity},
      {LOCKSTEP_ROW(GeluErfDerivative), GeluErfDerivative, 3.0, 2e-7, 1e-15, 1e-15, -kInfinity,
       kInfinity},
  };
}
#undef LOCKSTEP_ROW

// ---- Arguments.

std::vector<float> Specials() {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values = {
      0.0f, Limits::denorm_min(), Limits::min(), std::nextafter(Limits::min(), 0.0f), Limits::max(),
      Limits::infinity(), Limits::quiet_NaN(), Limits::signaling_NaN(), 1.0f,
      std::nextafter(1.0f, 0.0f), std::nextafter(1.0f, 2.0f), 0.5f, 2.0f,
      // Around the ends of exp, exp2 and expm1, and where pieces meet.
      88.72283f, 88.72284f, 89.0f, 89.1f, 87.33655f, 103.27893f, 103.97208f, 104.0f, 104.1f, 126.0f,
      127.0f, 127.99999f, 128.0f, 129.5f, 149.0f, 149.5f, 150.0f, 150.1f, 151.5f, 40.0f, 40.1f,
      0.34657359f, 0.9277343f, 0.92773437f, 1.3120147f, 3.9f, 4.0f, 9.01f, 10.0f, 10.1f, 15.0f,
      15.1f, 1e10f, 1e20f, 1e30f};
  const size_t positive = values.size();
  for (size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  return values;
}

// 2^20 bit patterns spread over all floats, among them NaN payloads, and as many values of
// ordinary size.
std::vector<float> ManyFloats() {
  std::vector<float> values = Specials();
  for (uint32_t i = 0; i < (1u << 20); ++i) {
    const uint32_t bits = (i << 12) | (i * 2654435761u >> 20);
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    values.push_back(value);
    values.push_back((static_cast<float>(i) - 524287.5f) * (12.0f / 524288.0f));
  }
  return values;
}

// Distance of neighbouring floats around `value`.
double UnitInTheLastPlace(double value) {
  using Limits = std::numeric_limits<float>;
  const double magnitude = std::clamp<double>(std::abs(value), Limits::min(), Limits::max());
  return std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

// Empty if `got` is right for the exact result `want`, otherwise what is wrong.
std::string FloatProblem(const Tested& tested, float got, double want) {
  const float rounded = static_cast<float>(want);
  if (std::isnan(rounded) || std::isnan(got)) {
    return std::isnan(rounded) == std::isnan(got) ? "" : "NaN on one side only";
  }
  if (got == rounded && got != 0.0f) return "";
  if (std::isinf(rounded) || std::isinf(got)) {
    // The border of overflow may be off by the allowed error, no more.
    const double finite = std::isinf(got) ? want : got;
    const double max = std::numeric_limits<float>::max();
    const bool near = !std::isinf(finite) && std::abs(finite) > max * (1 - 1e-6) &&
                      std::signbit(got) == std::signbit(rounded);
    return got == rounded || near ? "" : "infinity on one side only";
  }
  if (std::abs(got - want) > tested.ulps * UnitInTheLastPlace(want) + tested.absolute) {
    return "error too large";
  }
  if (want == 0.0 && got == 0.0f && std::signbit(got) != std::signbit(want)) return "sign of zero";
  return "";
}

class VectorMathTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

INSTANTIATE_TEST_SUITE_P(AllTargets, VectorMathTest,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<int64_t>& info) {
                           return std::string(hwy::TargetName(info.param));
                         });

TEST_P(VectorMathTest, FloatAgreesWithTheCLibraryInDouble) {
  const std::vector<float> all = ManyFloats();
  for (const Tested& tested : TestedFunctions()) {
    std::vector<float> x;
    for (const float value : all) {
      if (!(value < tested.lowest) && !(value > tested.highest)) x.push_back(value);
    }
    std::vector<float> y(x.size());
    tested.float_function(x.data(), y.data(), x.size());
    int reported = 0;
    double worst = 0;
    for (size_t i = 0; i < x.size() && reported < 10; ++i) {
      const double want = tested.reference(x[i]);
      const std::string problem = FloatProblem(tested, y[i], want);
      if (!problem.empty()) {
        ++reported;
        ADD_FAILURE() << tested.name << "(" << x[i] << ") = " << y[i] << ", not " << want << ": "
                      << problem;
      }
      if (std::isfinite(static_cast<float>(want)) && std::isfinite(y[i])) {
        const double ulps = std::abs(y[i] - want) / UnitInTheLastPlace(want);
        if (std::abs(y[i] - want) > tested.absolute) worst = std::max(worst, ulps);
      }
    }
    RecordProperty(tested.name + "_ulps", std::to_string(worst));
  }
}

TEST_P(VectorMathTest, DoubleAgreesWithTheCLibrary) {
  std::vector<double> all = {1e-300,  5e-324, 1e300,  1.7976931348623157e308,
                             709.78,  709.79, -708.4, -745.13,
                             -745.14, -750.0, 1023.5, 1024.5,
                             -1074.5, -1075.5};
  for (const float value : Specials()) all.push_back(value);
  for (int i = -20000; i < 20000; ++i) all.push_back(i * 1.0009765625e-3);
  for (const Tested& tested : TestedFunctions()) {
    std::vector<double> x;
    for (const double value : all) {
      if (!(value < tested.lowest) && !(value > tested.highest)) x.push_back(value);
    }
    std::vector<double> y(x.size());
    tested.double_function(x.data(), y.data(), x.size());
    int reported = 0;
    for (size_t i = 0; i < x.size() && reported < 10; ++i) {
      const double want = tested.reference(x[i]);
      if (std::isnan(want) && std::isnan(y[i])) continue;
      if (want == y[i] && std::signbit(want) == std::signbit(y[i])) continue;
      const double bound = tested.double_relative * std::abs(want) + tested.double_absolute;
      if (bound > 0 && std::abs(want - y[i]) <= bound) continue;
      ++reported;
      ADD_FAILURE() << tested.name << "(" << x[i] << ") = " << y[i] << ", not " << want;
    }
  }
}

// An element has the same result wherever it stands: in each lane, in a whole vector and in a tail.
TEST_P(VectorMathTest, ResultsDoNotDependOnThePosition) {
  std::vector<float> x = Specials();
  for (int i = 0; i < 50; ++i) x.push_back(std::ldexp(-1.37f * static_cast<float>(i) + 20.1f, -2));
  for (const Tested& tested : TestedFunctions()) {
    std::vector<float> alone(x.size());
    for (size_t i = 0; i < x.size(); ++i) tested.float_function(&x[i], &alone[i], 1);
    for (size_t begin = 0; begin < 17; ++begin) {
      for (size_t end = x.size() - 17; end <= x.size(); ++end) {
        std::vector<float> y(x.size(), -77.0f);
        tested.float_function(x.data() + begin, y.data() + begin, end - begin);
        for (size_t i = 0; i < x.size(); ++i) {
          const float want = i >= begin && i < end ? alone[i] : -77.0f;
          if (std::isnan(want) && std::isnan(y[i])) continue;  // Its sign means nothing.
          ASSERT_EQ(std::memcmp(&y[i], &want, sizeof(want)), 0)
              << tested.name << "(" << x[i] << ") = " << y[i] << " at " << i << " of " << begin
              << ".." << end << ", " << want << " alone";
        }
      }
    }
  }
}

TEST_P(VectorMathTest, GeluFarFromZero) {
  const std::vector<float> x = {1e3f,
                                1e20f,
                                3e38f,
                                -1e3f,
                                -1e20f,
                                -3e38f,
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity()};
  for (const Tested& tested : TestedFunctions()) {
    if (tested.name != "GeluTanh" && tested.name != "GeluErf") continue;
    std::vector<float> y(x.size());
    tested.float_function(x.data(), y.data(), x.size());
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(y[i], x[i]) << tested.name;
    for (size_t i = 3; i < 6; ++i) {
      EXPECT_EQ(y[i], 0.0f) << tested.name << x[i];
      EXPECT_TRUE(std::signbit(y[i])) << tested.name << x[i];
    }
    EXPECT_EQ(y[6], x[6]) << tested.name;
    EXPECT_TRUE(std::isnan(y[7])) << tested.name << y[7];
  }
}

TEST_P(VectorMathTest, PowIsThatOfTheCLibrary) {
  std::vector<double> x;
  std::vector<double> y;
  for (const double a :
       {0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.3, 1e300, kInfinity, -kInfinity, kNan}) {
    for (const double b : {0.0, 1.0, -1.0, 2.0, 3.0, 0.5, -0.5, 1e5, kInfinity, -kInfinity, kNan}) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  std::vector<double> z(x.size());
  HWY_DYNAMIC_DISPATCH(PowDouble)(x.data(), y.data(), z.data(), x.size());
  const std::vector<float> xf(x.begin(), x.end());
  const std::vector<float> yf(y.begin(), y.end());
  std::vector<float> zf(x.size());
  HWY_DYNAMIC_DISPATCH(PowFloat)(xf.data(), yf.data(), zf.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::pow(x[i], y[i]);
    EXPECT_TRUE(z[i] == want || (std::isnan(z[i]) && std::isnan(want))) << x[i] << "^" << y[i];
    const float want_float = std::pow(xf[i], yf[i]);
    EXPECT_TRUE(zf[i] == want_float || (std::isnan(zf[i]) && std::isnan(want_float)))
        << xf[i] << "^" << yf[i];
  }
}

}  // namespace
}  // namespace lockstep::cpu

#endif  // HWY_ONCE
