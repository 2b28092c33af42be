// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/cpu/matmul.h"

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu/contraction_table.h"
#include "lockstep/tensor/cpu/convert.h"
#include "lockstep/tensor/cpu/onednn_matmul.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/kernel.h"

namespace lockstep::cpu {
namespace {

// `values` as elements of `dtype`.
std::vector<char> Elements(const std::vector<double>& values, DType dtype) {
  std::vector<char> bytes(values.size() * ItemSize(dtype));
  if (IsReducedFloat(dtype)) {
    const std::vector<float> floats(values.begin(), values.end());
    ConvertElements(DType::kFloat32, dtype, values.size(), floats.data(), bytes.data());
  } else {
    ConvertElements(DType::kFloat64, dtype, values.size(), values.data(), bytes.data());
  }
  return bytes;
}

std::vector<double> Doubles(const std::vector<char>& bytes, DType dtype) {
  std::vector<double> values(bytes.size() / ItemSize(dtype));
  ConvertElements(dtype, DType::kFloat64, values.size(), bytes.data(), values.data());
  return values;
}

std::vector<double> Sequence(int64_t count, int64_t salt) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<double>((i * 31 + salt * 17 + i / 5) % 33 - 16) / 16;
  }
  return values;
}

struct Case {
  DType dtype;
  Shape batch;
  int64_t m, n, k;
  bool a_transposed = false;
  bool b_transposed = false;
  bool a_broadcast = false;  // one matrix for the whole batch
  bool b_broadcast = false;
  bool bias = false;
};

double Tolerance(DType dtype, int64_t k) {
  switch (dtype) {
    case DType::kFloat32:
      return 1e-6 * static_cast<double>(k);
    case DType::kBFloat16:
      return 4e-3 * static_cast<double>(k);
    case DType::kFloat16:
      return 6e-4 * static_cast<double>(k);
    case DType::kFloat64:
      return 1e-14 * static_cast<double>(k);
    default:
      return 0;
  }
}

// C's bytes with `threads` threads, compared with sums in double.
std::vector<char> RunAndCheck(const Case& c, int threads) {
  int64_t batch_count = 1;
  for (const int64_t size : c.batch) batch_count *= size;
  std::vector<double> a_values = Sequence((c.a_broadcast ? 1 : batch_count) * c.m * c.k, 1);
  std::vector<double> b_values = Sequence((c.b_broadcast ? 1 : batch_count) * c.k * c.n, 2);
  std::vector<double> bias_values = Sequence(c.n, 3);
  if (!IsFloatingPoint(c.dtype)) {
    for (auto* values : {&a_values, &b_values, &bias_values}) {
      for (double& v : *values) v *= 16;
    }
  }
  const std::vector<char> a = Elements(a_values, c.dtype), b = Elements(b_values, c.dtype);
  const std::vector<char> bias = Elements(bias_values, c.dtype);
  std::vector<char> result(batch_count * c.m * c.n * ItemSize(c.dtype), 0x7f);

  MatMulCall call;
  call.dtype = c.dtype;
  call.batch = c.batch;
  call.m = c.m;
  call.n = c.n;
  call.k = c.k;
  const auto operand = [&](const std::vector<char>& data, int64_t rows, int64_t cols,
                           bool transposed, bool broadcast) {
    MatMulOperand operand;
    operand.data = data.data();
    operand.row_stride = transposed ? 1 : cols;
    operand.col_stride = transposed ? rows : 1;
    operand.batch_strides.resize(c.batch.size());
    int64_t stride = rows * cols;
    for (int64_t d = static_cast<int64_t>(c.batch.size()) - 1; d >= 0; --d) {
      operand.batch_strides[d] = broadcast ? 0 : stride;
      stride *= c.batch[d];
    }
    return operand;
  };
  call.a = operand(a, c.m, c.k, c.a_transposed, c.a_broadcast);
  call.b = operand(b, c.k, c.n, c.b_transposed, c.b_broadcast);
  call.c = result.data();
  call.bias = c.bias ? bias.data() : nullptr;
  KernelContext context(Cpu(0), 0, threads);
  RunMatMul(context, call);

  const std::vector<double> values = Doubles(result, c.dtype);
  for (int64_t i = 0; i < batch_count; ++i) {
    const double* a_matrix = a_values.data() + (c.a_broadcast ? 0 : i * c.m * c.k);
    const double* b_matrix = b_values.data() + (c.b_broadcast ? 0 : i * c.k * c.n);
    // Every row of small matrices, a few of large ones.
    for (int64_t row = 0; row<c.m; row += c.m> 500 ? 37 : 1) {
      for (int64_t col = 0; col < c.n; ++col) {
        double expected = c.bias ? bias_values[col] : 0;
        for (int64_t q = 0; q < c.k; ++q) {
          expected += (c.a_transposed ? a_matrix[q * c.m + row] : a_matrix[row * c.k + q]) *
                      (c.b_transposed ? b_matrix[col * c.k + q] : b_matrix[q * c.n + col]);
        }
        EXPECT_NEAR(values[(i * c.m + row) * c.n + col], expected, Tolerance(c.dtype, c.k + 1))
            << DTypeName(c.dtype) << " matrix " << i << " at " << row << ", " << col;
        if (testing::Test::HasFailure()) return result;
      }
    }
  }
  return result;
}

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16,
                             DType::kFloat64, DType::kInt64,    DType::kInt32};

TEST(MatMulTest, LayoutsAndBroadcasts) {
  for (const DType dtype : kDTypes) {
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        for (const bool bias : {false, true}) {
          RunAndCheck({dtype, {}, 5, 7, 3, a_transposed, b_transposed, false, false, bias}, 1);
          RunAndCheck({dtype, {2, 3}, 5, 7, 3, a_transposed, b_transposed, false, true, bias}, 2);
          RunAndCheck({dtype, {3, 1}, 4, 1, 6, a_transposed, b_transposed, true, false, bias}, 2);
          RunAndCheck({dtype, {3}, 70, 65, 66, a_transposed, b_transposed, false, false, bias}, 2);
        }
      }
    }
  }
}

TEST(MatMulTest, EmptySizes) {
  for (const DType dtype : kDTypes) {
    for (const bool bias : {false, true}) {
      RunAndCheck({dtype, {}, 3, 5, 0, false, false, false, false, bias}, 2);
      RunAndCheck({dtype, {}, 0, 5, 3, false, false, false, false, bias}, 2);
      RunAndCheck({dtype, {}, 3, 0, 3, false, false, false, false, bias}, 2);
      RunAndCheck({dtype, {2, 0}, 3, 5, 4, false, false, false, false, bias}, 2);
    }
  }
}

// A batch whose rows continue is one product: the result must not change.
TEST(MatMulTest, FoldedBatchOfSingleRows) {
  RunAndCheck({DType::kFloat32, {4, 3}, 1, 5, 6, false, true, false, true, true}, 1);
  RunAndCheck({DType::kFloat32, {4, 1, 3}, 2, 5, 6, false, true, false, true, true}, 1);
  RunAndCheck({DType::kFloat32, {4, 3}, 2, 5, 6, true, true, false, true, true}, 1);
  RunAndCheck({DType::kFloat32, {4, 3}, 2, 5, 6, false, true, true, true, false}, 1);
}

// oneDNN may split K over threads; what BlockGemm computes is the same on any number of them. The
// sizes stay below those that any processor gives to oneDNN.
TEST(MatMulTest, ThreadsChangeNoBit) {
  const Case cases[] = {{DType::kFloat32, {}, 130, 17, 390},
                        {DType::kFloat32, {}, 40, 600, 30, true},
                        {DType::kFloat64, {}, 130, 70, 90, false, true},
                        {DType::kBFloat16, {5}, 61, 70, 60, true, true},
                        {DType::kFloat16, {}, 1600, 530, 3},
                        {DType::kInt32, {}, 130, 70, 90},
                        {DType::kFloat32, {7}, 61, 70, 90}};
  for (const Case& c : cases) {
    ASSERT_EQ(ChooseContraction(c.dtype, c.m * c.n * c.k), ContractionMethod::kBlockGemm);
    const std::vector<char> one = RunAndCheck(c, 1);
    for (const int threads : {2, 3, 8}) EXPECT_EQ(RunAndCheck(c, threads), one) << threads;
  }
}

TEST(MatMulTest, LargeFloatProductsRunOnOneDnn) {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      Case c{DType::kFloat32, {2}, 520, 515, 512, a_transposed, b_transposed};
      c.b_broadcast = true;
      c.bias = true;
      RunAndCheck(c, 2);
    }
  }
}

TEST(MatMulTest, BytesAreRefused) {
  bool a = true, b = true, c = false;
  MatMulCall call;
  call.dtype = DType::kBool;
  call.m = call.n = call.k = 1;
  call.a.data = &a;
  call.b.data = &b;
  call.c = &c;
  KernelContext context(Cpu(0), 0, 1);
  try {
    RunMatMul(context, call);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
  }
}

TEST(OneDnnMatMulTest, OperandsThatNeedNoCopy) {
  OneDnnOperand operand;
  ASSERT_TRUE(AsOneDnnOperand(3, 5, 8, 1, &operand));
  EXPECT_FALSE(operand.transposed);
  EXPECT_EQ(operand.leading_dimension, 8);
  ASSERT_TRUE(AsOneDnnOperand(3, 5, 1, 4, &operand));
  EXPECT_TRUE(operand.transposed);
  EXPECT_EQ(operand.leading_dimension, 4);
  ASSERT_TRUE(AsOneDnnOperand(1, 5, 0, 1, &operand));
  EXPECT_EQ(operand.leading_dimension, 5);
  EXPECT_FALSE(AsOneDnnOperand(3, 5, 0, 1, &operand)) << "a repeated row";
  EXPECT_FALSE(AsOneDnnOperand(3, 5, 10, 2, &operand));
  EXPECT_FALSE(AsOneDnnOperand(3, 5, 4, 1, &operand)) << "rows overlap";
}

// Small shapes directly: the table would not send them there.
TEST(OneDnnMatMulTest, AgreesAndIsCachedPerShape) {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};            // [2, 3]
  const std::vector<float> b = {1, 0, 2, -1, 3, 1, 0, 1, 1};  // [3, 3]
  const std::vector<float> bias = {10, 20, 30};
  OneDnnMatMul problem;
  problem.m = 2, problem.n = 3, problem.k = 3;
  problem.a = {false, 3};
  problem.b = {false, 3};
  problem.c_row_stride = 3;
  problem.has_bias = true;
  std::vector<float> c(6);
  KernelContext context(Cpu(0), 0, 1);
  const int64_t before = OneDnnMatMulCacheSize();
  RunOneDnnMatMul(context, problem, a.data(), b.data(), bias.data(), c.data());
  EXPECT_EQ(c, (std::vector<float>{9, 29, 37, 9, 41, 49}));
  const int64_t after = OneDnnMatMulCacheSize();
  EXPECT_EQ(after, before + 1);
  RunOneDnnMatMul(context, problem, a.data(), b.data(), bias.data(), c.data());
  EXPECT_EQ(OneDnnMatMulCacheSize(), after);
  problem.b = {true, 3};
  RunOneDnnMatMul(context, problem, a.data(), b.data(), bias.data(), c.data());
  EXPECT_EQ(c, (std::vector<float>{17, 28, 35, 26, 37, 41}));
  EXPECT_EQ(OneDnnMatMulCacheSize(), after + 1);
}

// All layouts, rows that are further apart than they are long, and sizes of 1.
TEST(OneDnnMatMulTest, BFloat16InEveryLayout) {
  if (EffectiveInstructionSet() < InstructionSet::kAvx512BFloat16) {
    GTEST_SKIP() << "BlockGemm has bfloat16 on " << InstructionSetName(EffectiveInstructionSet());
  }
  const int64_t sizes[][3] = {{1, 1, 1},   {5, 7, 3},   {1, 33, 70},
                              {65, 1, 34}, {48, 64, 1}, {33, 65, 67}};
  KernelContext context(Cpu(0), 0, 2);
  for (const auto& [m, n, k] : sizes) {
    for (int layout = 0; layout < 16; ++layout) {
      const bool a_transposed = layout & 1, b_transposed = layout & 2;
      const int64_t gap = layout & 4 ? 3 : 0;
      OneDnnMatMul problem;
      problem.dtype = DType::kBFloat16;
      problem.m = m, problem.n = n, problem.k = k;
      problem.a = {a_transposed, (a_transposed ? m : k) + gap};
      problem.b = {b_transposed, (b_transposed ? k : n) + gap};
      problem.c_row_stride = n;
      problem.has_bias = layout & 8;
      const std::vector<double> a_values =
          Sequence(problem.a.leading_dimension * (a_transposed ? k : m), 1);
      const std::vector<double> b_values =
          Sequence(problem.b.leading_dimension * (b_transposed ? n : k), 2);
      const std::vector<double> bias_values = Sequence(n, 3);
      const DType dtype = DType::kBFloat16;
      const std::vector<char> a = Elements(a_values, dtype), b = Elements(b_values, dtype);
      const std::vector<char> bias = Elements(bias_values, dtype);
      std::vector<char> c(m * n * ItemSize(dtype), 0x7f);
      RunOneDnnMatMul(context, problem, a.data(), b.data(),
                      problem.has_bias ? bias.data() : nullptr, c.data());
      const std::vector<double> values = Doubles(c, dtype);
      for (int64_t i = 0; i < m * n; ++i) {
        const int64_t row = i / n, col = i % n;
        double expected = problem.has_bias ? bias_values[col] : 0;
        for (int64_t q = 0; q < k; ++q) {
          expected += a_values[a_transposed ? q * problem.a.leading_dimension + row
                                            : row * problem.a.leading_dimension + q] *
                      b_values[b_transposed ? col * problem.b.leading_dimension + q
                                            : q * problem.b.leading_dimension + col];
        }
        // The sum is exact in float32 and is rounded once.
        ASSERT_NEAR(values[i], expected, std::abs(expected) * 0x1p-8)
            << m << " x " << n << " x " << k << " layout " << layout << " at " << row << ", "
            << col;
      }
    }
  }
}

TEST(OneDnnMatMulTest, CacheIsBounded) {
  KernelContext context(Cpu(0), 0, 1);
  std::vector<float> a(2), b(2), c(1200);
  for (int64_t n = 1; n <= kOneDnnMatMulCacheCapacity + 20; ++n) {
    OneDnnMatMul problem;
    problem.m = 1, problem.n = 1, problem.k = 1;
    problem.a = {false, n};
    problem.b = {false, 1};
    problem.c_row_stride = 1;
    RunOneDnnMatMul(context, problem, a.data(), b.data(), nullptr, c.data());
  }
  EXPECT_EQ(OneDnnMatMulCacheSize(), kOneDnnMatMulCacheCapacity);
}

TEST(OneDnnMatMulTest, RefusedDTypeSaysSo) {
  OneDnnMatMul problem;
  problem.dtype = DType::kFloat64;
  problem.m = problem.n = problem.k = 1;
  problem.a = problem.b = {false, 1};
  problem.c_row_stride = 1;
  double value = 1;
  KernelContext context(Cpu(0), 0, 1);
  EXPECT_THROW(RunOneDnnMatMul(context, problem, &value, &value, nullptr, &value), Error);
}

// The same tests with the choices of lesser processors.
TEST(MatMulTest, ForcedInstructionSets) {
  if (std::getenv("DNNL_MAX_CPU_ISA") != nullptr) GTEST_SKIP() << "one level is enough";
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self));
  ASSERT_GT(length, 0);
  const std::string program(self, static_cast<size_t>(length));
  for (const char* isa : {"SSE41", "AVX2", "AVX512_CORE"}) {
    const std::string command = std::string("DNNL_MAX_CPU_ISA=") + isa + " '" + program +
                                "' --gtest_filter=MatMulTest.L* >/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << isa;
  }
}

}  // namespace
}  // namespace lockstep::cpu
