// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ops on one tensor: creation, arithmetic, elementary functions, against double references.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu/kernel_testing.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct UnaryCase {
  std::string name;
  std::function<Tensor(const Tensor&)> op;
  std::function<double(double)> reference;
  double low = -3;
  double high = 3;
  double ulps = 4;  // beyond the rounding of the result
  bool specials = true;
};

double GeluTanhReference(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}

std::vector<UnaryCase> FloatCases() {
  return {
      {"Neg", [](const Tensor& x) { return Neg(x); }, [](double x) { return -x; }},
      {"Abs", [](const Tensor& x) { return Abs(x); }, [](double x) { return std::abs(x); }},
      {"Sign", [](const Tensor& x) { return Sign(x); },
       [](double x) { return static_cast<double>((x > 0) - (x < 0)); }},
      {"Exp", [](const Tensor& x) { return Exp(x); }, [](double x) { return std::exp(x); }},
      {"Log", [](const Tensor& x) { return Log(x); }, [](double x) { return std::log(x); }, 0.01,
       9},
      {"Sqrt", [](const Tensor& x) { return Sqrt(x); }, [](double x) { return std::sqrt(x); }, 0,
       9},
      {"Rsqrt", [](const Tensor& x) { return Rsqrt(x); }, [](double x) { return 1 / std::sqrt(x); },
       0.01, 9},
      {"Reciprocal", [](const Tensor& x) { return Reciprocal(x); }, [](double x) { return 1 / x; },
       0.1, 9},
      {"Erf", [](const Tensor& x) { return Erf(x); }, [](double x) { return std::erf(x); }},
      {"Tanh", [](const Tensor& x) { return Tanh(x); }, [](double x) { return std::tanh(x); }},
      {"Sigmoid", [](const Tensor& x) { return Sigmoid(x); },
       [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"Relu", [](const Tensor& x) { return Relu(x); }, [](double x) { return x <= 0 ? 0 : x; }},
      {"Gelu erf", [](const Tensor& x) { return Gelu(x); },
       [](double x) { return 0.5 * x * std::erfc(-x * M_SQRT1_2); }, -3, 3, 64, false},
      {"Gelu tanh", [](const Tensor& x) { return Gelu(x, GeluKind::kTanh); }, GeluTanhReference, -3,
       3, 64, false},
      {"Clamp", [](const Tensor& x) { return Clamp(x, -0.5, 1.25); },
       [](double x) { return std::isnan(x) ? x : std::min(std::max(x, -0.5), 1.25); }},
      {"AddScalar", [](const Tensor& x) { return Add(x, 0.75); }, [](double x) { return x + 0.75; },
       1, 3},
      {"MulScalar", [](const Tensor& x) { return Mul(x, -1.5); },
       [](double x) { return x * -1.5; }},
      {"DivScalar", [](const Tensor& x) { return Div(x, 3.0); }, [](double x) { return x / 3; }},
      {"Pow 2", [](const Tensor& x) { return Pow(x, 2.0); }, [](double x) { return x * x; }},
      {"Pow 3", [](const Tensor& x) { return Pow(x, 3.0); }, [](double x) { return x * x * x; }},
      {"Pow 0.5", [](const Tensor& x) { return Pow(x, 0.5); },
       [](double x) { return std::sqrt(x); }, 0, 9, 4, false},
      {"Pow -1", [](const Tensor& x) { return Pow(x, -1.0); }, [](double x) { return 1 / x; }, 1,
       9},
      {"Pow 1.7", [](const Tensor& x) { return Pow(x, 1.7); },
       [](double x) { return std::pow(x, static_cast<double>(1.7f)); }, 0.1, 9, 64},
  };
}

TEST(UnaryKernels, MatchReferencesForEverySizeDTypeAndLayout) {
  for (const UnaryCase& test : FloatCases()) {
    for (const DType dtype : kFloatDTypes) {
      for (const int64_t size : {0, 1, 3, 5, 17, 1000}) {
        const Tensor packed = MakeTensor(Numbers(size, test.low, test.high), {size}, dtype);
        std::vector<double> expected;
        for (const double x : packed.ToVector<double>()) expected.push_back(test.reference(x));
        const double tolerance = RoundingUnit(dtype) + test.ulps * 0x1p-23;
        const double tight = dtype == DType::kFloat64 && test.name != "Pow 1.7" ? 1e-13 : tolerance;
        const double floor = dtype == DType::kFloat16 ? 0x1p-14 : 1e-30;  // subnormals round more
        const Tensor y = test.op(packed);
        EXPECT_EQ(y.dtype(), dtype);
        ExpectClose(y, expected, tight, test.name, floor);
        for (const Tensor& x : Layouts(packed)) {
          EXPECT_EQ(Bits(test.op(x)), Bits(y)) << test.name << " " << x.DebugString();
        }
      }
    }
  }
}

TEST(UnaryKernels, SpecialValues) {
  const std::vector<double> values = {kNaN, kInfinity, -kInfinity, 0.0, -0.0,
                                      1,    -1,        1e-40,      88,  -104};
  for (const UnaryCase& test : FloatCases()) {
    if (!test.specials) continue;
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const Tensor x = MakeTensor(values, {10}, dtype);
      std::vector<double> expected;
      for (const double v : x.ToVector<double>()) expected.push_back(test.reference(v));
      if (dtype == DType::kFloat32) {
        for (double& e : expected) e = static_cast<float>(e);
      }
      ExpectClose(test.op(x), expected, 64 * 0x1p-24, test.name, 1e-37);
    }
  }
  // What the specials of GELU are is the table of activations-inl.h; NaN stays NaN.
  EXPECT_TRUE(std::isnan(Gelu(MakeTensor({kNaN}, {1}, DType::kFloat32)).Item<double>()));
}

TEST(UnaryKernels, ResultsDoNotDependOnThePosition) {
  for (const UnaryCase& test : FloatCases()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Tensor x = MakeTensor(Numbers(61, test.low, test.high), {61}, dtype);
      const std::vector<uint64_t> whole = Bits(test.op(x));
      for (int64_t start = 0; start < 20; ++start) {
        for (const int64_t length : {1, 2, 7, 9, 41}) {
          const std::vector<uint64_t> part = Bits(test.op(Slice(x, 0, start, start + length)));
          EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + start))
              << test.name << " " << start << " " << length;
        }
      }
    }
  }
}

TEST(UnaryKernels, ThreadsDoNotChangeResults) {
  const Tensor x = MakeTensor(Numbers(100003, 0.1, 3), {100003}, DType::kFloat32);
  for (const UnaryCase& test : FloatCases()) {
    ExpectSameForThreads(test.name, [&] { return test.op(x); });
  }
}

TEST(UnaryKernels, InPlaceWritesTheTensorItself) {
  const Shape shape = {5, 17};
  const Tensor packed = MakeTensor(Numbers(85, 0.1, 3), shape, DType::kFloat32);
  for (const Tensor& x : Layouts(packed)) {
    const std::vector<uint64_t> expected = Bits(Exp(x));
    EXPECT_TRUE(ExpInPlace(x).IsSame(x));
    EXPECT_EQ(Bits(x), expected);
  }
}

TEST(UnaryKernels, IntegersWrapAround) {
  const int64_t low = std::numeric_limits<int64_t>::min();
  const Tensor x = FromVector<int64_t>({low, -3, 0, 5, INT64_MAX}, {5});
  EXPECT_EQ(Neg(x).ToVector<int64_t>(), (std::vector<int64_t>{low, 3, 0, -5, -INT64_MAX}));
  EXPECT_EQ(Abs(x).ToVector<int64_t>(), (std::vector<int64_t>{low, 3, 0, 5, INT64_MAX}));
  EXPECT_EQ(Sign(x).ToVector<int64_t>(), (std::vector<int64_t>{-1, -1, 0, 1, 1}));
  EXPECT_EQ(Relu(x).ToVector<int64_t>(), (std::vector<int64_t>{0, 0, 0, 5, INT64_MAX}));
  EXPECT_EQ(Clamp(x, -2, 4).ToVector<int64_t>(), (std::vector<int64_t>{-2, -2, 0, 4, 4}));
  EXPECT_EQ(Add(x, 1).ToVector<int64_t>(), (std::vector<int64_t>{low + 1, -2, 1, 6, low}));
  EXPECT_EQ(Mul(x, 2).ToVector<int64_t>(), (std::vector<int64_t>{0, -6, 0, 10, -2}));
  const Tensor bytes = FromVector<uint8_t>({0, 1, 200, 255}, {4});
  EXPECT_EQ(Add(bytes, 100).ToVector<int64_t>(), (std::vector<int64_t>{100, 101, 44, 99}));
  EXPECT_EQ(Neg(bytes).ToVector<int64_t>(), (std::vector<int64_t>{0, 255, 56, 1}));
  const Tensor small = FromVector<int32_t>({INT32_MIN, 7}, {2});
  EXPECT_EQ(Mul(small, 3).ToVector<int64_t>(), (std::vector<int64_t>{INT32_MIN, 21}));
  EXPECT_EQ(Pow(FromVector<int64_t>({3, -2, 0}, {3}), 3).ToVector<int64_t>(),
            (std::vector<int64_t>{27, -8, 0}));
}

TEST(UnaryKernels, FullFillAndArange) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                            DType::kInt64, DType::kInt32, DType::kUInt8}) {
    EXPECT_EQ(Full({3, 5}, 7, {.dtype = dtype}).ToVector<double>(), std::vector<double>(15, 7));
    EXPECT_EQ(Arange(2, 12, 3, {.dtype = dtype}).ToVector<double>(),
              (std::vector<double>{2, 5, 8, 11}));
  }
  EXPECT_EQ(Full({2}, true).ToVector<bool>(), (std::vector<bool>{true, true}));
  EXPECT_EQ(Full({0}, 1.0).numel(), 0);
  EXPECT_EQ(Full({}, 2.5).Item<float>(), 2.5f);
  const Tensor x = Zeros({4, 6});
  FillInPlace(Slice(x, 1, 1, 6, 2), 1.5);
  EXPECT_EQ(x.ToVector<double>(),
            (std::vector<double>{0, 1.5, 0, 1.5, 0, 1.5, 0, 1.5, 0, 1.5, 0, 1.5,
                                 0, 1.5, 0, 1.5, 0, 1.5, 0, 1.5, 0, 1.5, 0, 1.5}));
  const Tensor range = Arange(0, 100003, 1, {.dtype = DType::kFloat32});
  EXPECT_EQ(range.Item<double>({99999}), 99999);
  EXPECT_EQ(Arange(1.0, 2.0, 0.25).ToVector<double>(), (std::vector<double>{1, 1.25, 1.5, 1.75}));
}

TEST(UnaryKernels, TriangularMaskKeepsOneTriangle) {
  const Tensor packed = MakeTensor(Numbers(2 * 3 * 5, 1, 2), {2, 3, 5}, DType::kFloat32);
  for (const Tensor& x : Layouts(packed)) {
    for (int64_t diagonal = -4; diagonal <= 6; ++diagonal) {
      const std::vector<double> values = x.ToVector<double>();
      const std::vector<double> lower = Tril(x, diagonal).ToVector<double>();
      const std::vector<double> upper = Triu(x, diagonal).ToVector<double>();
      for (int64_t i = 0; i < 30; ++i) {
        const int64_t distance = i % 5 - i / 5 % 3;
        EXPECT_EQ(lower[i], distance <= diagonal ? values[i] : 0) << i << " " << diagonal;
        EXPECT_EQ(upper[i], distance >= diagonal ? values[i] : 0) << i << " " << diagonal;
      }
    }
  }
  EXPECT_EQ(Tril(Ones({2, 2}), INT64_MAX).ToVector<double>(), std::vector<double>(4, 1));
  EXPECT_EQ(Tril(Ones({2, 2}), INT64_MIN).ToVector<double>(), std::vector<double>(4, 0));
  EXPECT_EQ(Tril(Ones({0, 3}), 0).numel(), 0);
}

TEST(UnaryKernels, PredicatesGiveBool) {
  const Tensor x = MakeTensor({kNaN, kInfinity, -kInfinity, 0, -0.0, 3}, {6}, DType::kFloat32);
  EXPECT_EQ(IsFinite(x).ToVector<bool>(),
            (std::vector<bool>{false, false, false, true, true, true}));
  EXPECT_EQ(LogicalNot(x).ToVector<bool>(),
            (std::vector<bool>{false, false, false, true, true, false}));
  EXPECT_EQ(IsFinite(FromVector<int64_t>({1, 0}, {2})).ToVector<bool>(),
            (std::vector<bool>{true, true}));
}

}  // namespace
}  // namespace lockstep::cpu
