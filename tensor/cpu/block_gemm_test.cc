// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/cpu/block_gemm.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {
namespace {

// Position-dependent values in [-1, 1], exact in bfloat16.
double Value(int64_t index, int64_t salt) {
  return static_cast<double>((index * 37 + salt * 11 + index / 7) % 65 - 32) / 32.0;
}

template <typename T>
T Make(double value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return ToBFloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, float16>) {
    return ToFloat16(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value * 32);
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
double AsDouble(T value) {
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
    return ToFloat(value);
  } else {
    return static_cast<double>(value);
  }
}

struct Layout {
  bool a_columns;  // A is stored by columns
  bool b_columns;
  int64_t a_step;  // elements between neighbours
  int64_t b_step;
};

enum class Start { kZero, kBias, kAccumulate };

template <typename T>
void Check(int64_t m, int64_t n, int64_t k, const Layout& layout, Start start) {
  using C = GemmAccumulator<T>;
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << " a_columns "
                                  << layout.a_columns << " b_columns " << layout.b_columns
                                  << " steps " << layout.a_step << " " << layout.b_step << " start "
                                  << static_cast<int>(start));
  BlockGemmCall<T> call;
  call.m = m;
  call.n = n;
  call.k = k;
  call.a_row_stride = layout.a_columns ? layout.a_step : k * layout.a_step + 3;
  call.a_col_stride = layout.a_columns ? m * layout.a_step + 1 : layout.a_step;
  call.b_row_stride = layout.b_columns ? layout.b_step : n * layout.b_step + 5;
  call.b_col_stride = layout.b_columns ? k * layout.b_step + 2 : layout.b_step;
  const auto extent = [](int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
    return rows == 0 || cols == 0 ? 0 : (rows - 1) * row_stride + (cols - 1) * col_stride + 1;
  };
  std::vector<T> a(extent(m, k, call.a_row_stride, call.a_col_stride));
  std::vector<T> b(extent(k, n, call.b_row_stride, call.b_col_stride));
  for (size_t i = 0; i < a.size(); ++i) a[i] = Make<T>(Value(i, 1));
  for (size_t i = 0; i < b.size(); ++i) b[i] = Make<T>(Value(i, 2));
  const int64_t c_row_stride = n + 4;
  const C guard = static_cast<C>(99);
  std::vector<C> c(m * c_row_stride, guard);
  std::vector<C> bias(n);
  for (int64_t j = 0; j < n; ++j) bias[j] = static_cast<C>(j % 9 - 4);
  if (start == Start::kAccumulate) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) c[i * c_row_stride + j] = static_cast<C>((i + 2 * j) % 5);
    }
  }
  std::vector<C> workspace(BlockGemmWorkspace<T>(m, n, k) + 1, guard);
  call.a = a.data();
  call.b = b.data();
  call.c = c.data();
  call.c_row_stride = c_row_stride;
  call.bias = start == Start::kBias ? bias.data() : nullptr;
  call.accumulate = start == Start::kAccumulate;
  call.workspace = workspace.data();
  BlockGemm(call);

  EXPECT_EQ(workspace.back(), guard) << "wrote beyond the workspace";
  const double tolerance = std::is_same_v<C, double> ? 1e-13 : std::is_integral_v<C> ? 0 : 2e-6;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double expected = start == Start::kBias         ? AsDouble(bias[j])
                        : start == Start::kAccumulate ? static_cast<double>((i + 2 * j) % 5)
                                                      : 0;
      for (int64_t q = 0; q < k; ++q) {
        expected += AsDouble(a[i * call.a_row_stride + q * call.a_col_stride]) *
                    AsDouble(b[q * call.b_row_stride + j * call.b_col_stride]);
      }
      if constexpr (std::is_integral_v<T>) {
        expected = static_cast<double>(static_cast<T>(static_cast<int64_t>(expected)));
      }
      ASSERT_NEAR(AsDouble(c[i * c_row_stride + j]), expected,
                  tolerance * static_cast<double>(k + 1))
          << "at " << i << ", " << j;
    }
    for (int64_t j = n; j < c_row_stride; ++j) {
      ASSERT_EQ(c[i * c_row_stride + j], guard) << "wrote beyond row " << i;
    }
  }
}

template <typename T>
class BlockGemmTest : public testing::Test {};
using Types = testing::Types<float, double, bfloat16, float16, int64_t, int32_t>;
TYPED_TEST_SUITE(BlockGemmTest, Types);

TYPED_TEST(BlockGemmTest, AgreesWithSumsInAllLayouts) {
  const int64_t sizes[][3] = {{1, 1, 1},   {3, 5, 7},    {6, 16, 4},   {7, 17, 5},  {12, 32, 9},
                              {13, 33, 2}, {5, 64, 400}, {200, 3, 65}, {1, 530, 8}, {65, 66, 67}};
  for (const auto& [m, n, k] : sizes) {
    for (const bool a_columns : {false, true}) {
      for (const bool b_columns : {false, true}) {
        Check<TypeParam>(m, n, k, {a_columns, b_columns, 1, 1}, Start::kZero);
      }
    }
  }
}

TYPED_TEST(BlockGemmTest, StridesBetweenElements) {
  Check<TypeParam>(7, 19, 11, {false, false, 3, 2}, Start::kZero);
  Check<TypeParam>(7, 19, 11, {true, true, 2, 3}, Start::kZero);
}

TYPED_TEST(BlockGemmTest, BiasAndAccumulation) {
  for (const Start start : {Start::kBias, Start::kAccumulate}) {
    Check<TypeParam>(9, 18, 5, {false, false, 1, 1}, start);
    Check<TypeParam>(9, 18, 800, {false, true, 1, 1}, start);  // several passes over k
    Check<TypeParam>(3, 5, 0, {false, false, 1, 1}, start);
  }
}

TYPED_TEST(BlockGemmTest, EmptySizes) {
  Check<TypeParam>(0, 5, 3, {false, false, 1, 1}, Start::kZero);
  Check<TypeParam>(5, 0, 3, {false, false, 1, 1}, Start::kZero);
  Check<TypeParam>(5, 3, 0, {false, false, 1, 1}, Start::kZero);
}

TEST(BlockGemmTest, StrideZeroRepeatsOneRow) {
  const std::vector<float> a = {1, 2, 3};
  const std::vector<float> b = {1, 10, 100, 1000, 10000, 100000};  // [3, 2]
  std::vector<float> c(8), workspace(BlockGemmWorkspace<float>(4, 2, 3));
  BlockGemmCall<float> call;
  call.m = 4, call.n = 2, call.k = 3;
  call.a = a.data(), call.a_row_stride = 0, call.a_col_stride = 1;
  call.b = b.data(), call.b_row_stride = 2, call.b_col_stride = 1;
  call.c = c.data(), call.c_row_stride = 2;
  call.workspace = workspace.data();
  BlockGemm(call);
  EXPECT_EQ(c, (std::vector<float>{30201, 302010, 30201, 302010, 30201, 302010, 30201, 302010}));
}

// What lets matmul.cc cut C over threads as it likes.
TEST(BlockGemmTest, ElementsDoNotDependOnTheCut) {
  const int64_t m = 50, n = 70, k = 900;
  std::vector<float> a(m * k), b(k * n), whole(m * n), parts(m * n);
  for (size_t i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = std::cos(static_cast<float>(i));
  std::vector<float> workspace(BlockGemmWorkspace<float>(m, n, k));
  BlockGemmCall<float> call;
  call.m = m, call.n = n, call.k = k;
  call.a = a.data(), call.a_row_stride = k;
  call.b = b.data(), call.b_row_stride = n;
  call.c = whole.data(), call.c_row_stride = n;
  call.workspace = workspace.data();
  BlockGemm(call);
  for (int64_t i = 0; i < m; i += 11) {
    for (int64_t j = 0; j < n; j += 23) {
      BlockGemmCall<float> part = call;
      part.m = std::min<int64_t>(11, m - i);
      part.n = std::min<int64_t>(23, n - j);
      part.a += i * k;
      part.b += j;
      part.c = parts.data() + i * n + j;
      BlockGemm(part);
    }
  }
  EXPECT_EQ(whole, parts);
}

TEST(BlockGemmTest, NanAndInfinityReachTheirElementsOnly) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> a(4 * 3, 1), b(3 * 5, 2), c(4 * 5),
      workspace(BlockGemmWorkspace<float>(4, 5, 3));
  a[1 * 3 + 2] = nan;
  BlockGemmCall<float> call;
  call.m = 4, call.n = 5, call.k = 3;
  call.a = a.data(), call.a_row_stride = 3;
  call.b = b.data(), call.b_row_stride = 5;
  call.c = c.data(), call.c_row_stride = 5;
  call.workspace = workspace.data();
  BlockGemm(call);
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 5; ++j) EXPECT_EQ(std::isnan(c[i * 5 + j]), i == 1);
  }
}

TEST(BlockGemmTest, IntegersWrapAround) {
  const std::vector<int32_t> a = {std::numeric_limits<int32_t>::max(), 2};
  const std::vector<int32_t> b = {2, 3};
  std::vector<int32_t> c(1), workspace(BlockGemmWorkspace<int32_t>(1, 1, 2));
  BlockGemmCall<int32_t> call;
  call.m = 1, call.n = 1, call.k = 2;
  call.a = a.data(), call.a_row_stride = 2;
  call.b = b.data(), call.b_row_stride = 1;
  call.c = c.data(), call.c_row_stride = 1;
  call.workspace = workspace.data();
  BlockGemm(call);
  EXPECT_EQ(c[0], 4);
}

// 16-bit products are summed in float32: 512 ones are 512, where a bfloat16 sum would stay at 256.
TEST(BlockGemmTest, SixteenBitSumsDoNotStall) {
  const std::vector<bfloat16> ones(512, ToBFloat16(1.0f));
  std::vector<float> c(1), workspace(BlockGemmWorkspace<bfloat16>(1, 1, 512));
  BlockGemmCall<bfloat16> call;
  call.m = 1, call.n = 1, call.k = 512;
  call.a = ones.data(), call.a_row_stride = 512;
  call.b = ones.data(), call.b_row_stride = 1;
  call.c = c.data(), call.c_row_stride = 1;
  call.workspace = workspace.data();
  BlockGemm(call);
  EXPECT_EQ(c[0], 512.0f);
}

}  // namespace
}  // namespace lockstep::cpu
