// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ops on two and three tensors, with broadcasting, against double references.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/cpu/kernel_testing.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double Larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }
double Smaller(double a, double b) { return std::isnan(a) || a < b ? a : b; }

void ExpectSame(const Tensor& result, const Tensor& expected) {
  ASSERT_EQ(result.dtype(), expected.dtype());
  ASSERT_EQ(result.shape(), expected.shape());
  EXPECT_TRUE(All(Equal(result, expected)).Item<bool>());
}

struct BinaryCase {
  std::string name;
  std::function<Tensor(const Tensor&, const Tensor&)> op;
  std::function<double(double, double)> reference;
};

std::vector<BinaryCase> Arithmetic() {
  return {
      {"Add", [](const Tensor& x, const Tensor& y) { return Add(x, y); },
       [](double a, double b) { return a + b; }},
      {"Add alpha", [](const Tensor& x, const Tensor& y) { return Add(x, y, 2); },
       [](double a, double b) { return a + 2 * b; }},
      {"Mul", [](const Tensor& x, const Tensor& y) { return Mul(x, y); },
       [](double a, double b) { return a * b; }},
      {"Maximum", [](const Tensor& x, const Tensor& y) { return Maximum(x, y); }, Larger},
      {"Minimum", [](const Tensor& x, const Tensor& y) { return Minimum(x, y); }, Smaller},
  };
}

std::vector<BinaryCase> FloatArithmetic() {
  std::vector<BinaryCase> cases = Arithmetic();
  cases.push_back({"Div", [](const Tensor& x, const Tensor& y) { return Div(x, y); },
                   [](double a, double b) { return a / b; }});
  cases.push_back({"Pow", [](const Tensor& x, const Tensor& y) { return Pow(x, y); },
                   [](double a, double b) { return std::pow(a, b); }});
  return cases;
}

std::vector<BinaryCase> Comparisons() {
  return {
      {"Equal", [](const Tensor& x, const Tensor& y) { return Equal(x, y); },
       [](double a, double b) { return a == b ? 1.0 : 0.0; }},
      {"NotEqual", [](const Tensor& x, const Tensor& y) { return NotEqual(x, y); },
       [](double a, double b) { return a != b ? 1.0 : 0.0; }},
      {"Less", [](const Tensor& x, const Tensor& y) { return Less(x, y); },
       [](double a, double b) { return a < b ? 1.0 : 0.0; }},
      {"LessEqual", [](const Tensor& x, const Tensor& y) { return LessEqual(x, y); },
       [](double a, double b) { return a <= b ? 1.0 : 0.0; }},
      {"Greater", [](const Tensor& x, const Tensor& y) { return Greater(x, y); },
       [](double a, double b) { return a > b ? 1.0 : 0.0; }},
      {"GreaterEqual", [](const Tensor& x, const Tensor& y) { return GreaterEqual(x, y); },
       [](double a, double b) { return a >= b ? 1.0 : 0.0; }},
      {"LogicalAnd", [](const Tensor& x, const Tensor& y) { return LogicalAnd(x, y); },
       [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }},
      {"LogicalOr", [](const Tensor& x, const Tensor& y) { return LogicalOr(x, y); },
       [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }},
  };
}

// The reference over broadcast operands, element by element.
std::vector<double> Reference(const BinaryCase& test, const Tensor& x, const Tensor& y) {
  const Shape shape = BroadcastShapes(x.shape(), y.shape(), "test");
  const std::vector<double> a = x.ToVector<double>();
  const std::vector<double> b = y.ToVector<double>();
  const Strides xs = BroadcastStrides(x.shape(), ContiguousStrides(x.shape()), shape, "test");
  const Strides ys = BroadcastStrides(y.shape(), ContiguousStrides(y.shape()), shape, "test");
  std::vector<double> result(static_cast<size_t>(NumElements(shape)));
  for (size_t i = 0; i < result.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i);
    int64_t x_at = 0;
    int64_t y_at = 0;
    for (size_t d = shape.size(); d-- > 0;) {
      x_at += rest % shape[d] * xs[d];
      y_at += rest % shape[d] * ys[d];
      rest /= shape[d];
    }
    result[i] = test.reference(a[x_at], b[y_at]);
  }
  return result;
}

const std::vector<std::pair<Shape, Shape>>& ShapePairs() {
  static const auto* pairs = new std::vector<std::pair<Shape, Shape>>{
      {{}, {}},           {{0}, {1}},          {{1}, {1}},          {{3}, {}},
      {{5}, {5}},         {{17}, {1}},         {{1000}, {1000}},    {{3, 5}, {5}},
      {{3, 5}, {3, 1}},   {{7, 1}, {1, 3}},    {{2, 3, 5}, {3, 1}}, {{5, 100}, {100}},
      {{5, 700}, {5, 1}}, {{4, 1, 6}, {3, 1}}, {{2, 0, 3}, {3}},    {{2, 3, 4, 5}, {3, 1, 5}},
  };
  return *pairs;
}

TEST(BinaryKernels, MatchReferencesForEveryShapeDTypeAndLayout) {
  for (const BinaryCase& test : FloatArithmetic()) {
    for (const DType dtype : kFloatDTypes) {
      for (const auto& [x_shape, y_shape] : ShapePairs()) {
        const Tensor x = MakeTensor(Numbers(NumElements(x_shape), 0.5, 3, 1), x_shape, dtype);
        const Tensor y = MakeTensor(Numbers(NumElements(y_shape), 0.5, 3, 2), y_shape, dtype);
        const Tensor z = test.op(x, y);
        const double tolerance =
            dtype == DType::kFloat64 ? 1e-15 : RoundingUnit(dtype) + 2 * 0x1p-24;
        ExpectClose(z, Reference(test, x, y), tolerance, test.name, 1);
        for (const Tensor& a : Layouts(x)) {
          for (const Tensor& b : Layouts(y)) {
            EXPECT_EQ(Bits(test.op(a, b)), Bits(z)) << test.name << " " << a.DebugString();
          }
        }
      }
    }
  }
}

TEST(BinaryKernels, IntegersAndBool) {
  std::vector<BinaryCase> cases = Arithmetic();
  for (const BinaryCase& test : Comparisons()) cases.push_back(test);
  for (const BinaryCase& test : cases) {
    for (const DType dtype : kIntegerDTypes) {
      for (const auto& [x_shape, y_shape] : ShapePairs()) {
        const Tensor x = MakeTensor(Numbers(NumElements(x_shape), 0, 9, 1), x_shape, dtype);
        const Tensor y = MakeTensor(Numbers(NumElements(y_shape), 0, 9, 2), y_shape, dtype);
        ExpectClose(test.op(x, y), Reference(test, x, y), 0, test.name);
      }
    }
  }
  const Tensor a = FromVector<uint8_t>({0, 0, 1, 1}, {4}, {.dtype = DType::kBool});
  const Tensor b = FromVector<uint8_t>({0, 1, 0, 1}, {4}, {.dtype = DType::kBool});
  EXPECT_EQ(Add(a, b).ToVector<bool>(), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(Mul(a, b).ToVector<bool>(), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(Maximum(a, b).ToVector<bool>(), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(Minimum(a, b).ToVector<bool>(), (std::vector<bool>{false, false, false, true}));
}

TEST(BinaryKernels, IntegerOverflowWraps) {
  const Tensor x = FromVector<int64_t>({INT64_MAX, INT64_MIN, 1ll << 62}, {3});
  EXPECT_EQ(Add(x, x).ToVector<int64_t>(), (std::vector<int64_t>{-2, 0, INT64_MIN}));
  EXPECT_EQ(Mul(x, x).ToVector<int64_t>(), (std::vector<int64_t>{1, 0, 0}));
  const Tensor y = FromVector<int32_t>({INT32_MAX, 65536}, {2});
  EXPECT_EQ(Mul(y, y).ToVector<int64_t>(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(
      Pow(FromVector<int64_t>({2, -1, 1, 3, 7}, {5}), FromVector<int64_t>({-1, -3, -9, 4, 0}, {5}))
          .ToVector<int64_t>(),
      (std::vector<int64_t>{0, -1, 1, 81, 1}));
}

TEST(BinaryKernels, Comparisons) {
  for (const BinaryCase& test : Comparisons()) {
    for (const DType dtype : kFloatDTypes) {
      const Tensor x = MakeTensor({kNaN, 1, 2, -0.0, kInfinity, 3, 0}, {7}, dtype);
      const Tensor y = MakeTensor({kNaN, 2, 1, 0.0, kInfinity, kNaN, 5}, {7}, dtype);
      const Tensor z = test.op(x, y);
      EXPECT_EQ(z.dtype(), DType::kBool);
      ExpectClose(z, Reference(test, x, y), 0, test.name);
    }
  }
}

TEST(BinaryKernels, NaNWinsInMaximumAndMinimum) {
  for (const DType dtype : kFloatDTypes) {
    std::vector<double> a(37, 1);
    std::vector<double> b(37, 2);
    a[3] = b[5] = a[36] = b[36] = kNaN;
    const Tensor x = MakeTensor(a, {37}, dtype);
    const Tensor y = MakeTensor(b, {37}, dtype);
    for (const Tensor& z : {Maximum(x, y), Minimum(x, y)}) {
      for (int64_t i = 0; i < 37; ++i) {
        EXPECT_EQ(std::isnan(z.Item<double>({i})), i == 3 || i == 5 || i == 36) << i;
      }
    }
  }
}

TEST(BinaryKernels, BackwardRows) {
  const std::vector<double> values = Numbers(1003, -2, 2, 3);
  const std::vector<double> grads = Numbers(1003, -1, 1, 4);
  for (const DType dtype : kFloatDTypes) {
    const Tensor y = MakeTensor(values, {1003}, dtype);
    const Tensor grad = MakeTensor(grads, {1003}, dtype);
    const auto check = [&](OpId op, const Attributes& attributes,
                           const std::function<double(double, double)>& reference) {
      const BinaryCase test = {GetOpInfo(op).name, nullptr, reference};
      const double tolerance = RoundingUnit(dtype) + (dtype == DType::kFloat64 ? 1e-14 : 4e-7);
      ExpectClose(Dispatch1(op, {grad, y}, {}, attributes), Reference(test, grad, y), tolerance,
                  test.name, 0.1);
    };
    check(OpId::kTanhBackward, EmptyAttributes(),
          [](double g, double v) { return g * (1 - v * v); });
    check(OpId::kSigmoidBackward, EmptyAttributes(),
          [](double g, double v) { return g * v * (1 - v); });
    check(OpId::kReluBackward, EmptyAttributes(), [](double g, double v) { return v > 0 ? g : 0; });
    GeluAttributes gelu;
    check(OpId::kGeluBackward, gelu, [](double g, double v) {
      return g * (0.5 * std::erfc(-v * M_SQRT1_2) + v * std::exp(-v * v / 2) / std::sqrt(2 * M_PI));
    });
    gelu.kind = GeluKind::kTanh;
    check(OpId::kGeluBackward, gelu, [](double g, double v) {
      const double c = std::sqrt(2 / M_PI);
      const double t = std::tanh(c * (v + 0.044715 * v * v * v));
      return g * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * c * (1 + 3 * 0.044715 * v * v));
    });
  }
  // A NaN activation passes the gradient on, as in PyTorch.
  EXPECT_EQ(Dispatch1(OpId::kReluBackward, {MakeTensor({2}, {1}, DType::kFloat32),
                                            MakeTensor({kNaN}, {1}, DType::kFloat32)})
                .Item<double>(),
            2);
}

TEST(BinaryKernels, WhereMovesBits) {
  for (const DType dtype :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kInt64, DType::kUInt8}) {
    const Tensor x = MakeTensor(Numbers(3 * 700, 0, 99, 1), {3, 700}, dtype);
    const Tensor y = MakeTensor(Numbers(700, 0, 99, 2), {700}, dtype);
    const Tensor condition = MakeTensor({1, 0, 1}, {3, 1}, DType::kBool);
    const std::vector<double> a = x.ToVector<double>();
    const std::vector<double> b = y.ToVector<double>();
    for (const Tensor& layout : Layouts(x)) {
      const std::vector<double> z = Where(condition, layout, y).ToVector<double>();
      for (int64_t i = 0; i < 2100; ++i) EXPECT_EQ(z[i], i / 700 == 1 ? b[i % 700] : a[i]) << i;
    }
  }
  EXPECT_EQ(Where(MakeTensor({1}, {}, DType::kBool), Ones({}), Zeros({})).Item<double>(), 1);
}

TEST(BinaryKernels, ThreadsAndPositionsDoNotChangeResults) {
  const Tensor x = MakeTensor(Numbers(301 * 333, 0.5, 3, 1), {301, 333}, DType::kFloat32);
  const Tensor y = MakeTensor(Numbers(333, 0.5, 3, 2), {333}, DType::kFloat32);
  for (const BinaryCase& test : FloatArithmetic()) {
    ExpectSameForThreads(test.name, [&] { return test.op(x, y); });
    const std::vector<uint64_t> whole = Bits(test.op(x, y));
    for (const int64_t start : {1, 2, 3, 5, 8, 9}) {
      const Tensor part = test.op(Slice(x, 1, start), Slice(y, 0, start));
      const std::vector<uint64_t> bits = Bits(part);
      for (int64_t i = 0; i < part.numel(); ++i) {
        const int64_t at = i / (333 - start) * 333 + i % (333 - start) + start;
        ASSERT_EQ(bits[i], whole[at]) << test.name << " " << start << " " << i;
      }
    }
  }
}

TEST(BinaryKernels, InPlaceOnEveryLayout) {
  const Tensor y = MakeTensor(Numbers(70, 1, 2, 2), {70}, DType::kFloat32);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Tensor packed = MakeTensor(Numbers(9 * 70, 1, 2, 1), {9, 70}, dtype);
    const std::vector<uint64_t> expected = Bits(Mul(packed, To(y, dtype)));
    for (const Tensor& x : Layouts(packed)) {
      MulInPlace(x, To(y, dtype));
      EXPECT_EQ(Bits(x), expected) << x.DebugString();
    }
  }
  const Tensor square = MakeTensor({1, 2, 3, 4}, {2, 2}, DType::kFloat32);
  AddInPlace(square, Transpose(square, 0, 1));
  EXPECT_EQ(square.ToVector<double>(), (std::vector<double>{2, 5, 5, 8}));
}

// The same bits as after a cast, in one pass.
TEST(BinaryKernels, AddOfFloat32AndSixteenBits) {
  const Tensor wide = RandomNormal({7, 65}), row = RandomNormal({65});
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Tensor narrow = To(RandomNormal({7, 65}), dtype),
                 strided = To(RandomNormal({65, 7}), dtype);
    const Tensor widened = To(narrow, DType::kFloat32);
    ExpectSame(Add(wide, narrow), Add(wide, widened));
    ExpectSame(Add(narrow, wide), Add(widened, wide));
    ExpectSame(Add(wide, narrow, 0.3), Add(wide, widened, 0.3));
    ExpectSame(Sub(narrow, wide), Sub(widened, wide));
    ExpectSame(Add(row, narrow), Add(row, widened));
    ExpectSame(Add(wide, Transpose(strided, 0, 1)),
               Add(wide, To(Transpose(strided, 0, 1), DType::kFloat32)));
    ExpectSame(AddInPlace(Clone(wide), narrow, 2), Add(wide, widened, 2));
  }
  const Tensor a = To(wide, DType::kBFloat16), b = To(RandomNormal({7, 65}), DType::kFloat16);
  ExpectSame(Add(a, b), Add(To(a, DType::kFloat32), To(b, DType::kFloat32)));
  const Tensor large = RandomNormal({40000}),
               large_narrow = To(RandomNormal({40000}), DType::kBFloat16);
  ExpectSame(Add(large, large_narrow), Add(large, To(large_narrow, DType::kFloat32)));
}

}  // namespace
}  // namespace lockstep::cpu
