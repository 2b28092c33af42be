// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// MatMul and Linear through the public functions: layouts, transposes, broadcast batches.
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu/kernel_testing.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/contraction.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::cpu {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16,
                             DType::kFloat64, DType::kInt64,    DType::kInt32};

// Multiples of 1/8 up to 2 (integers: up to 16), so that every dtype holds them.
Tensor Operand(const Shape& shape, DType dtype, int64_t salt) {
  std::vector<double> values(NumElements(shape));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>((static_cast<int64_t>(i) * 29 + salt * 13) % 33 - 16);
    if (IsFloatingPoint(dtype)) values[i] /= 8;
  }
  return MakeTensor(values, shape, dtype);
}

double At(const std::vector<double>& values, int64_t matrix, int64_t rows, int64_t cols, int64_t i,
          int64_t j) {
  return values[(matrix * rows + i) * cols + j];
}

// Products are exact in float32: only 16-bit results are rounded.
double Tolerance(DType dtype) { return IsReducedFloat(dtype) ? RoundingUnit(dtype) : 1e-6; }

TEST(MatMulKernelTest, TransposesLayoutsAndBatches) {
  const int64_t m = 5, n = 7, k = 3;
  for (const DType dtype : kDTypes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const Tensor a = Operand(ta ? Shape{2, 1, k, m} : Shape{2, 1, m, k}, dtype, 1);
        const Tensor b = Operand(tb ? Shape{3, n, k} : Shape{3, k, n}, dtype, 2);
        const std::vector<double> av = a.ToVector<double>(), bv = b.ToVector<double>();
        std::vector<double> expected;
        for (int64_t x = 0; x < 2; ++x) {
          for (int64_t y = 0; y < 3; ++y) {
            for (int64_t i = 0; i < m; ++i) {
              for (int64_t j = 0; j < n; ++j) {
                double sum = 0;
                for (int64_t q = 0; q < k; ++q) {
                  sum += (ta ? At(av, x, k, m, q, i) : At(av, x, m, k, i, q)) *
                         (tb ? At(bv, y, n, k, j, q) : At(bv, y, k, n, q, j));
                }
                expected.push_back(sum);
              }
            }
          }
        }
        for (const Tensor& al : Layouts(a)) {
          for (const Tensor& bl : Layouts(b)) {
            const Tensor c = MatMul(al, bl, {ta, tb});
            EXPECT_EQ(c.shape(), (Shape{2, 3, m, n}));
            ExpectClose(c, expected, Tolerance(dtype), std::string(DTypeName(dtype)), 1e-3);
          }
        }
        // The same by views.
        const Tensor c = MatMul(ta ? Transpose(a, -1, -2) : a, tb ? Transpose(b, -1, -2) : b);
        ExpectClose(c, expected, Tolerance(dtype), "views", 1e-3);
      }
    }
  }
}

TEST(MatMulKernelTest, Vectors) {
  const Tensor x = Operand({3}, DType::kFloat32, 1), a = Operand({2, 3}, DType::kFloat32, 2);
  const std::vector<double> xv = x.ToVector<double>(), av = a.ToVector<double>();
  double dot = 0;
  std::vector<double> product(2);
  for (int64_t q = 0; q < 3; ++q) {
    dot += xv[q] * xv[q];
    for (int64_t i = 0; i < 2; ++i) product[i] += av[i * 3 + q] * xv[q];
  }
  ExpectClose(MatMul(x, x), {dot}, 0, "vector by vector");
  EXPECT_EQ(MatMul(x, x).rank(), 0);
  ExpectClose(MatMul(a, x), product, 0, "matrix by vector");
  ExpectClose(MatMul(x, Transpose(a, 0, 1)), product, 0, "vector by matrix");
}

TEST(MatMulKernelTest, ExpandedAndEmptyOperands) {
  const Tensor row = Expand(Operand({1, 4}, DType::kFloat32, 1), {5, 4});
  const Tensor b = Operand({4, 3}, DType::kFloat32, 2);
  const std::vector<double> c = MatMul(row, b).ToVector<double>();
  for (int64_t i = 1; i < 5; ++i) {
    for (int64_t j = 0; j < 3; ++j) EXPECT_EQ(c[i * 3 + j], c[j]);
  }
  ExpectClose(MatMul(Empty({2, 0}), Empty({0, 3})), std::vector<double>(6, 0), 0, "K = 0");
  EXPECT_EQ(MatMul(Empty({0, 4}), b).shape(), (Shape{0, 3}));
  EXPECT_EQ(MatMul(Empty({0, 2, 4}), b).shape(), (Shape{0, 2, 3}));
}

TEST(LinearKernelTest, LayoutsAndBias) {
  const int64_t in = 6, out = 5;
  for (const DType dtype : kDTypes) {
    for (const Shape& lead :
         {Shape{}, Shape{1}, Shape{4}, Shape{2, 3}, Shape{2, 0}, Shape{2, 1, 3}}) {
      for (const bool has_bias : {false, true}) {
        Shape shape = lead;
        shape.push_back(in);
        const Tensor x = Operand(shape, dtype, 1), weight = Operand({out, in}, dtype, 2);
        const Tensor bias = Operand({out}, dtype, 3);
        const std::vector<double> xv = x.ToVector<double>(), wv = weight.ToVector<double>(),
                                  bv = bias.ToVector<double>();
        std::vector<double> expected;
        for (size_t i = 0; i < xv.size() / in; ++i) {
          for (int64_t j = 0; j < out; ++j) {
            double sum = has_bias ? bv[j] : 0;
            for (int64_t q = 0; q < in; ++q) sum += xv[i * in + q] * wv[j * in + q];
            expected.push_back(sum);
          }
        }
        const std::vector<Tensor> biases = Layouts(bias), weights = Layouts(weight);
        const std::vector<Tensor> xs = Layouts(x);
        for (size_t i = 0; i < xs.size(); ++i) {
          const Tensor y = Linear(xs[i], weights[i], has_bias ? biases[i] : Tensor());
          ExpectClose(y, expected, Tolerance(dtype), std::string(DTypeName(dtype)), 1e-3);
        }
      }
    }
  }
}

TEST(LinearKernelTest, ThreadsChangeNoBit) {
  const Tensor x = MakeTensor(Numbers(96 * 130, -1, 1), {96, 130}, DType::kFloat32);
  const Tensor weight = MakeTensor(Numbers(70 * 130, -1, 1, 2), {70, 130}, DType::kFloat32);
  const Tensor bias = MakeTensor(Numbers(70, -1, 1, 3), {70}, DType::kFloat32);
  ExpectSameForThreads("Linear", [&] { return Linear(x, weight, bias); });
}

TEST(LinearKernelTest, MismatchNamesBothShapes) {
  try {
    Linear(Empty({2, 3}), Empty({5, 4}));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("[2, 3]"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("[5, 4]"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace lockstep::cpu
