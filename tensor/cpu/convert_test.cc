// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Conversion row by row. That of single runs is tested with Cast (kernels_copy_test.cc) and with
// the vectors underneath (vector_io_test.cc).
#include "lockstep/tensor/cpu/convert.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {
namespace {

constexpr RowLayout kLayouts[] = {
    {.rows = 0, .cols = 5, .in_stride = 5, .out_stride = 5},
    {.rows = 3, .cols = 0, .in_stride = 4, .out_stride = 4},
    {.rows = 1, .cols = 1, .in_stride = 1, .out_stride = 1},
    {.rows = 4, .cols = 37, .in_stride = 50, .out_stride = 41},
    {.rows = 5, .cols = 64, .in_stride = 64, .out_stride = 70},
    {.rows = 3, .cols = 7, .in_stride = 0, .out_stride = 9},  // one row, three times
};

template <typename T>
T Narrow(float value);
template <>
bfloat16 Narrow<bfloat16>(float value) {
  return ToBFloat16(value);
}
template <>
float16 Narrow<float16>(float value) {
  return ToFloat16(value);
}

template <typename T, typename ToWide, typename FromWide>
void Check(ToWide widen, FromWide narrow) {
  for (const RowLayout& layout : kLayouts) {
    std::vector<T> in(400);
    std::vector<float> wide_in(400);
    for (size_t i = 0; i < in.size(); ++i) {
      wide_in[i] = static_cast<float>(i) + 1.0f / 3;
      in[i] = Narrow<T>(wide_in[i]);
    }
    std::vector<float> wide(400, -1);
    std::vector<T> out(400, Narrow<T>(-1));
    widen(in.data(), layout, wide.data());
    narrow(wide_in.data(), layout, out.data());
    std::vector<bool> written(400);
    for (int64_t i = 0; i < layout.rows; ++i) {
      for (int64_t j = 0; j < layout.cols; ++j) {
        const int64_t from = i * layout.in_stride + j, to = i * layout.out_stride + j;
        EXPECT_EQ(wide[to], ToFloat(in[from])) << i << ", " << j;
        EXPECT_EQ(out[to].bits, in[from].bits) << i << ", " << j;
        written[to] = true;
      }
    }
    for (size_t i = 0; i < wide.size(); ++i) {
      if (written[i]) continue;
      EXPECT_EQ(wide[i], -1) << i;
      EXPECT_EQ(ToFloat(out[i]), -1) << i;
    }
  }
}

TEST(ConvertRowsTest, BFloat16) {
  Check<bfloat16>([](const bfloat16* in, const RowLayout& layout,
                     float* out) { BFloat16ToFloat(in, layout, out); },
                  [](const float* in, const RowLayout& layout, bfloat16* out) {
                    FloatToBFloat16(in, layout, out);
                  });
}

TEST(ConvertRowsTest, Float16) {
  Check<float16>([](const float16* in, const RowLayout& layout,
                    float* out) { Float16ToFloat(in, layout, out); },
                 [](const float* in, const RowLayout& layout, float16* out) {
                   FloatToFloat16(in, layout, out);
                 });
}

}  // namespace
}  // namespace lockstep::cpu
