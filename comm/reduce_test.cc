// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/reduce.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "lockstep/comm/signature.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::comm {
namespace {

// Runs `body` with each instruction set that this processor and build have.
template <typename Body>
void ForEachTarget(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

template <typename T>
std::vector<T> Reduce(ReduceOp op, const std::vector<std::vector<T>>& ranks, double factor = 1) {
  std::vector<const void*> sources;
  for (const std::vector<T>& rank : ranks) sources.push_back(rank.data());
  std::vector<T> result(ranks[0].size());
  ReduceElements(op, kDTypeOf<T>, sources, static_cast<int64_t>(result.size()), result.data(),
                 factor);
  return result;
}

uint32_t Random(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

float Arbitrary(uint32_t& state) {
  return std::ldexp(static_cast<float>(Random(state)) - 8388608.0f,
                    static_cast<int>(Random(state) % 40) - 40);
}

float Widen(float value) { return value; }
float Widen(bfloat16 value) { return ToFloat(value); }
float Widen(float16 value) { return ToFloat(value); }
template <typename T>
T Narrow(float value) {
  if constexpr (std::is_same_v<T, bfloat16>) return ToBFloat16(value);
  if constexpr (std::is_same_v<T, float16>) return ToFloat16(value);
  if constexpr (std::is_same_v<T, float>) return value;
}

template <typename T>
bool SameBits(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Bit for bit the sum in rank order in float32, rounded once; tails as whole vectors.
template <typename T>
void CheckSums() {
  ForEachTarget([] {
    for (const size_t count : {0u, 1u, 3u, 5u, 8u, 31u, 33u, 1000u}) {
      for (const size_t ranks : {1u, 2u, 3u, 4u, 7u}) {
        uint32_t state = static_cast<uint32_t>(count * 10 + ranks);
        std::vector<std::vector<T>> inputs(ranks, std::vector<T>(count));
        for (auto& rank : inputs) {
          for (T& value : rank) value = Narrow<T>(Arbitrary(state));
        }
        const std::vector<T> sums = Reduce(ReduceOp::kSum, inputs);
        const std::vector<T> averages = Reduce(ReduceOp::kAverage, inputs);
        const std::vector<T> scaled = Reduce(ReduceOp::kPreMultipliedSum, inputs, 0.3);
        const std::vector<T> products = Reduce(ReduceOp::kProduct, inputs);
        for (size_t i = 0; i < count; ++i) {
          float sum = Widen(inputs[0][i]);
          float product = sum;
          float scaled_sum = sum * 0.3f;
          for (size_t r = 1; r < ranks; ++r) {
            sum += Widen(inputs[r][i]);
            product *= Widen(inputs[r][i]);
            scaled_sum += Widen(inputs[r][i]) * 0.3f;
          }
          const float scale = 1.0f / static_cast<float>(ranks);
          ASSERT_TRUE(SameBits(sums[i], Narrow<T>(sum))) << count << " " << ranks << " " << i;
          ASSERT_TRUE(SameBits(averages[i], Narrow<T>(sum * scale))) << count << " " << i;
          ASSERT_TRUE(SameBits(scaled[i], Narrow<T>(scaled_sum))) << count << " " << i;
          ASSERT_TRUE(SameBits(products[i], Narrow<T>(product))) << count << " " << i;
        }
      }
    }
  });
}

TEST(ReduceTest, SumsOfFloat32) { CheckSums<float>(); }
TEST(ReduceTest, SumsOfBFloat16) { CheckSums<bfloat16>(); }
TEST(ReduceTest, SumsOfFloat16) { CheckSums<float16>(); }

TEST(ReduceTest, SumsOfFloat64KeepTheirPrecision) {
  ForEachTarget([] {
    const std::vector<std::vector<double>> inputs = {
        {1.0, 1e16, 3.0}, {1e-9, 1.0, 4.0}, {1e-9, -1e16, 6.0}};
    EXPECT_EQ(Reduce(ReduceOp::kSum, inputs),
              (std::vector<double>{1.0 + 1e-9 + 1e-9, 1e16 + 1.0 - 1e16, 13.0}));
    EXPECT_EQ(Reduce(ReduceOp::kAverage, inputs)[2], 13.0 * (1.0 / 3.0));
  });
}

TEST(ReduceTest, NanWinsInMinimumAndMaximum) {
  ForEachTarget([] {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float inf = std::numeric_limits<float>::infinity();
    // As whole vectors and as tail.
    for (const size_t copies : {1u, 40u}) {
      std::vector<std::vector<float>> inputs(3);
      for (size_t i = 0; i < copies; ++i) {
        const float values[3][4] = {{nan, 1, -inf, 2}, {0, nan, 5, 3}, {1, 2, inf, -7}};
        for (size_t r = 0; r < 3; ++r) {
          inputs[r].insert(inputs[r].end(), values[r], values[r] + 4);
        }
      }
      const std::vector<float> low = Reduce(ReduceOp::kMin, inputs);
      const std::vector<float> high = Reduce(ReduceOp::kMax, inputs);
      for (size_t i = 0; i < low.size(); i += 4) {
        EXPECT_TRUE(std::isnan(low[i]) && std::isnan(high[i]) && std::isnan(low[i + 1]) &&
                    std::isnan(high[i + 1]));
        EXPECT_EQ(low[i + 2], -inf);
        EXPECT_EQ(high[i + 2], inf);
        EXPECT_EQ(low[i + 3], -7);
        EXPECT_EQ(high[i + 3], 3);
      }
    }
  });
}

TEST(ReduceTest, ANanStaysOneInSixteenBits) {
  ForEachTarget([] {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<std::vector<bfloat16>> inputs = {std::vector<bfloat16>(20, ToBFloat16(nan)),
                                                       std::vector<bfloat16>(20, bfloat16{})};
    for (const bfloat16 value : Reduce(ReduceOp::kSum, inputs)) {
      EXPECT_TRUE(std::isnan(ToFloat(value)));
    }
    const std::vector<std::vector<float16>> halves = {
        std::vector<float16>(20, ToFloat16(60000.0f)),
        std::vector<float16>(20, ToFloat16(60000.0f))};
    for (const float16 value : Reduce(ReduceOp::kAverage, halves)) {
      EXPECT_EQ(ToFloat(value), ToFloat(ToFloat16(60000.0f)));
    }
    for (const float16 value : Reduce(ReduceOp::kSum, halves)) {
      EXPECT_TRUE(std::isinf(ToFloat(value)));
    }
  });
}

TEST(ReduceTest, IntegersWrap) {
  const std::vector<std::vector<int32_t>> ints = {{INT32_MAX, 7, -5}, {1, 6, 3}};
  EXPECT_EQ(Reduce(ReduceOp::kSum, ints), (std::vector<int32_t>{INT32_MIN, 13, -2}));
  EXPECT_EQ(Reduce(ReduceOp::kProduct, ints), (std::vector<int32_t>{INT32_MAX, 42, -15}));
  EXPECT_EQ(Reduce(ReduceOp::kMin, ints), (std::vector<int32_t>{1, 6, -5}));
  EXPECT_EQ(Reduce(ReduceOp::kBitAnd, ints), (std::vector<int32_t>{1, 6, 3}));
  EXPECT_EQ(Reduce(ReduceOp::kBitXor, ints), (std::vector<int32_t>{INT32_MAX - 1, 1, -8}));
  const std::vector<std::vector<uint8_t>> bytes = {{200, 3}, {100, 90}};
  EXPECT_EQ(Reduce(ReduceOp::kSum, bytes), (std::vector<uint8_t>{44, 93}));
  EXPECT_EQ(Reduce(ReduceOp::kProduct, bytes), (std::vector<uint8_t>{32, 14}));
}

TEST(ReduceTest, BoolIsLogic) {
  const uint8_t a[] = {0, 0, 1, 1};
  const uint8_t b[] = {0, 1, 0, 1};
  const void* sources[] = {a, b};
  uint8_t result[4];
  const auto run = [&](ReduceOp op) {
    ReduceElements(op, DType::kBool, sources, 4, result);
    return std::vector<int>(result, result + 4);
  };
  EXPECT_EQ(run(ReduceOp::kSum), (std::vector<int>{0, 1, 1, 1}));
  EXPECT_EQ(run(ReduceOp::kMax), (std::vector<int>{0, 1, 1, 1}));
  EXPECT_EQ(run(ReduceOp::kProduct), (std::vector<int>{0, 0, 0, 1}));
  EXPECT_EQ(run(ReduceOp::kMin), (std::vector<int>{0, 0, 0, 1}));
  EXPECT_EQ(run(ReduceOp::kBitXor), (std::vector<int>{0, 1, 1, 0}));
}

TEST(CopyBytesTest, AnyAlignmentAndSize) {
  ForEachTarget([] {
    for (const int64_t bytes : {0, 1, 63, 64, 100, (256 << 10), (256 << 10) + 77}) {
      for (const int64_t shift : {0, 1, 17}) {
        std::vector<char> from(static_cast<size_t>(bytes + 64));
        std::vector<char> to(static_cast<size_t>(bytes + 64), 'x');
        for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + i / 251);
        CopyBytes(to.data() + shift, from.data() + 5, bytes);
        ASSERT_EQ(std::memcmp(to.data() + shift, from.data() + 5, static_cast<size_t>(bytes)), 0);
        for (int64_t i = 0; i < shift; ++i) ASSERT_EQ(to[static_cast<size_t>(i)], 'x');
        ASSERT_EQ(to[static_cast<size_t>(shift + bytes)], 'x');
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::comm
