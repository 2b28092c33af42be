// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/vector_io_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

// to[i] = from[i], converted.
template <typename To, typename From>
void Convert(const From* from, To* to, size_t count) {
  const hn::ScalableTag<ComputeType<From>> d;
  Transform(
      d, count, to, [](auto x) HWY_ATTR { return x; }, from);
}

void FloatToBFloat16(const float* from, bfloat16* to, size_t n) { Convert(from, to, n); }
void FloatToFloat16(const float* from, float16* to, size_t n) { Convert(from, to, n); }
void BFloat16ToFloat(const bfloat16* from, float* to, size_t n) { Convert(from, to, n); }
void Float16ToFloat(const float16* from, float* to, size_t n) { Convert(from, to, n); }
void FloatToFloat(const float* from, float* to, size_t n) { Convert(from, to, n); }
void DoubleToDouble(const double* from, double* to, size_t n) { Convert(from, to, n); }

// to = a - b with three different element types.
void SubtractMixed(const float16* a, const float* b, bfloat16* to, size_t count) {
  const hn::ScalableTag<float> d;
  Transform(
      d, count, to, [](auto x, auto y) HWY_ATTR { return hn::Sub(x, y); }, a, b);
}

// All elements in one 16-bit type.
void AddBFloat16(const bfloat16* a, const bfloat16* b, bfloat16* to, size_t count) {
  const hn::ScalableTag<float> d;
  Transform(
      d, count, to, [](auto x, auto y) HWY_ATTR { return hn::Add(x, y); }, a, b);
}

// The largest of `count` elements, with the tail filled by minus infinity.
template <typename T>
float MaxOf(const T* from, size_t count) {
  const hn::ScalableTag<float> d;
  const float lowest = -std::numeric_limits<float>::infinity();
  auto max = hn::Set(d, lowest);
  ForEachVector(
      d, count,
      [&](size_t at, size_t lanes)
          HWY_ATTR { max = hn::Max(max, LoadPartialOr(d, from + at, lanes, lowest)); },
      [&](size_t at) HWY_ATTR { max = hn::Max(max, LoadFull(d, from + at)); });
  return hn::GetLane(hn::MaxOfLanes(d, max));
}
float MaxOfFloat(const float* from, size_t count) { return MaxOf(from, count); }
float MaxOfBFloat16(const bfloat16* from, size_t count) { return MaxOf(from, count); }

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace lockstep::cpu {

HWY_EXPORT(AddBFloat16);
HWY_EXPORT(FloatToBFloat16);
HWY_EXPORT(FloatToFloat16);
HWY_EXPORT(BFloat16ToFloat);
HWY_EXPORT(Float16ToFloat);
HWY_EXPORT(FloatToFloat);
HWY_EXPORT(DoubleToDouble);
HWY_EXPORT(SubtractMixed);
HWY_EXPORT(MaxOfFloat);
HWY_EXPORT(MaxOfBFloat16);

namespace {

float FloatOfBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint32_t BitsOfFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// The exact value of a 16-bit pattern that is neither infinite nor NaN.
double ExactValue(uint16_t bits, int mantissa_bits, int bias) {
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                    : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// Nearest-even rounding by search among all patterns of the format: slow and plain.
uint16_t NearestPattern(float value, int mantissa_bits, int bias) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(static_cast<double>(value));
  uint16_t low = 0;
  uint16_t high = static_cast<uint16_t>(0x7fff & ~((1 << mantissa_bits) - 1));  // infinity
  // The pattern of infinity stands for the next power of two, where rounding overflows.
  while (high - low > 1) {
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    (ExactValue(middle, mantissa_bits, bias) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - ExactValue(low, mantissa_bits, bias);
  const double above = ExactValue(high, mantissa_bits, bias) - magnitude;
  const bool up = above < below || (above == below && low % 2 == 1);
  return static_cast<uint16_t>((up ? high : low) | sign);
}

// Every exponent with both signs, mantissas at and around the borders where rounding turns, and a
// spread of others.
std::vector<float> ManyFloats() {
  std::vector<float> values;
  for (uint32_t upper = 0; upper < (1u << 16); ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(FloatOfBits(upper << 16 | lower));
    }
    // Ties of float16 lie at bit 12.
    for (const uint32_t lower : {0x0fffu, 0x1000u, 0x1001u, 0x3000u}) {
      values.push_back(FloatOfBits(upper << 16 | lower));
    }
    values.push_back(FloatOfBits(upper << 16 | (upper * 40503u & 0xffff)));
  }
  return values;
}

class VectorIoTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

INSTANTIATE_TEST_SUITE_P(AllTargets, VectorIoTest,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<int64_t>& info) {
                           return std::string(hwy::TargetName(info.param));
                         });

template <typename T, typename Function>
void ExpectRounding(Function convert, int mantissa_bits, int bias) {
  const std::vector<float> x = ManyFloats();
  std::vector<T> y(x.size());
  convert(x.data(), y.data(), x.size());
  const int infinity = 0x7fff & ~((1 << mantissa_bits) - 1);
  int failures = 0;
  for (size_t i = 0; i < x.size() && failures < 10; ++i) {
    if (std::isnan(x[i])) {
      const bool is_nan = (y[i].bits & 0x7fff) > infinity;
      const bool same_sign = (y[i].bits >> 15) == (BitsOfFloat(x[i]) >> 31);
      failures += is_nan && same_sign ? 0 : 1;
      EXPECT_TRUE(is_nan && same_sign) << std::hex << BitsOfFloat(x[i]) << " -> " << y[i].bits;
    } else {
      const uint16_t want = std::isinf(x[i])
                                ? static_cast<uint16_t>(infinity | (x[i] < 0 ? 0x8000 : 0))
                                : NearestPattern(x[i], mantissa_bits, bias);
      failures += y[i].bits == want ? 0 : 1;
      EXPECT_EQ(y[i].bits, want) << std::hex << BitsOfFloat(x[i]);
    }
  }
}

TEST_P(VectorIoTest, FloatToBFloat16RoundsToNearestEven) {
  ExpectRounding<bfloat16>(HWY_DYNAMIC_DISPATCH(FloatToBFloat16), 7, 127);
}

TEST_P(VectorIoTest, FloatToFloat16RoundsToNearestEven) {
  ExpectRounding<float16>(HWY_DYNAMIC_DISPATCH(FloatToFloat16), 10, 15);
}

template <typename T, typename Function>
void ExpectExact(Function convert, int mantissa_bits, int bias) {
  std::vector<T> x(1 << 16);
  for (size_t i = 0; i < x.size(); ++i) x[i].bits = static_cast<uint16_t>(i);
  std::vector<float> y(x.size());
  convert(x.data(), y.data(), x.size());
  const int infinity = 0x7fff & ~((1 << mantissa_bits) - 1);
  for (size_t i = 0; i < x.size(); ++i) {
    const int magnitude = static_cast<int>(i & 0x7fff);
    ASSERT_EQ(std::signbit(y[i]), (i & 0x8000) != 0) << std::hex << i;
    if (magnitude > infinity) {
      ASSERT_TRUE(std::isnan(y[i])) << std::hex << i;
    } else if (magnitude == infinity) {
      ASSERT_TRUE(std::isinf(y[i])) << std::hex << i;
    } else {
      ASSERT_EQ(y[i], ExactValue(x[i].bits, mantissa_bits, bias)) << std::hex << i;
    }
  }
}

TEST_P(VectorIoTest, BFloat16ToFloatIsExact) {
  ExpectExact<bfloat16>(HWY_DYNAMIC_DISPATCH(BFloat16ToFloat), 7, 127);
}

TEST_P(VectorIoTest, Float16ToFloatIsExact) {
  ExpectExact<float16>(HWY_DYNAMIC_DISPATCH(Float16ToFloat), 10, 15);
}

// `count` elements whose last byte is followed by memory that must not be touched.
template <typename T>
class GuardedArray {
 public:
  explicit GuardedArray(size_t count) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    base_ = static_cast<char*>(
        mmap(nullptr, 3 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(base_, MAP_FAILED);
    EXPECT_EQ(mprotect(base_ + 2 * page_, page_, PROT_NONE), 0);
    data_ = reinterpret_cast<T*>(base_ + 2 * page_ - count * sizeof(T));
  }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;
  ~GuardedArray() { munmap(base_, 3 * page_); }

  T* data() const { return data_; }

 private:
  size_t page_;
  char* base_;
  T* data_;
};

template <typename From, typename To, typename Function>
void ExpectStaysInside(Function convert) {
  for (size_t count = 0; count <= 40; ++count) {
    GuardedArray<From> from(count);
    GuardedArray<To> to(count);
    // The bytes before the arrays are checked, those behind them would fault.
    auto* before = reinterpret_cast<unsigned char*>(to.data()) - 64;
    std::memset(before, 0xab, 64);
    convert(from.data(), to.data(), count);
    for (int i = 0; i < 64; ++i) ASSERT_EQ(before[i], 0xab) << count;
  }
}

TEST_P(VectorIoTest, TouchesNothingOutsideTheArrays) {
  ExpectStaysInside<float, float>(HWY_DYNAMIC_DISPATCH(FloatToFloat));
  ExpectStaysInside<double, double>(HWY_DYNAMIC_DISPATCH(DoubleToDouble));
  ExpectStaysInside<float, bfloat16>(HWY_DYNAMIC_DISPATCH(FloatToBFloat16));
  ExpectStaysInside<float, float16>(HWY_DYNAMIC_DISPATCH(FloatToFloat16));
  ExpectStaysInside<bfloat16, float>(HWY_DYNAMIC_DISPATCH(BFloat16ToFloat));
  ExpectStaysInside<float16, float>(HWY_DYNAMIC_DISPATCH(Float16ToFloat));
}

TEST_P(VectorIoTest, CopiesEveryElementToItsPlace) {
  for (size_t count = 0; count <= 40; ++count) {
    std::vector<double> from(count);
    for (size_t i = 0; i < count; ++i) from[i] = 1.0 / (1.0 + static_cast<double>(i));
    std::vector<double> to(count + 1, -1.0);
    HWY_DYNAMIC_DISPATCH(DoubleToDouble)(from.data(), to.data(), count);
    EXPECT_EQ(to[count], -1.0) << count;
    to.pop_back();
    EXPECT_EQ(to, from) << count;
  }
}

TEST_P(VectorIoTest, TransformMixesElementTypes) {
  for (const size_t count : {0, 1, 3, 5, 8, 16, 19}) {
    std::vector<float16> a(count);
    std::vector<float> b(count);
    for (size_t i = 0; i < count; ++i) {
      a[i].bits = static_cast<uint16_t>(0x3c00 + 0x400 * (i % 4));  // 1, 2, 4, 8
      b[i] = static_cast<float>(i);
    }
    std::vector<bfloat16> to(count + 1, bfloat16{0x1234});
    HWY_DYNAMIC_DISPATCH(SubtractMixed)(a.data(), b.data(), to.data(), count);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(ExactValue(to[i].bits, 7, 127), std::ldexp(1.0, i % 4) - static_cast<double>(i));
    }
    EXPECT_EQ(to[count].bits, 0x1234);
  }
}

// Even and odd elements go their own ways: each must come back to its place, rounded like any
// other.
TEST_P(VectorIoTest, TransformOfBFloat16AddsAndRoundsEachElement) {
  for (size_t count = 0; count <= 140; ++count) {
    std::vector<bfloat16> a(count), b(count), to(count + 1, bfloat16{0x1234});
    for (size_t i = 0; i < count; ++i) {
      a[i] = ToBFloat16(static_cast<float>(i + 1));
      b[i].bits = static_cast<uint16_t>(0x3a55 + 0x91 * i);
    }
    if (count > 3) a[count - 1].bits = 0x7f81, a[count - 2].bits = 0x7f80, a[1].bits = 0xffff;
    HWY_DYNAMIC_DISPATCH(AddBFloat16)(a.data(), b.data(), to.data(), count);
    for (size_t i = 0; i < count; ++i) {
      const float sum = ToFloat(a[i]) + ToFloat(b[i]);
      if (std::isnan(sum)) {
        EXPECT_TRUE(std::isnan(ToFloat(to[i]))) << i << " of " << count;
      } else {
        EXPECT_EQ(to[i].bits, ToBFloat16(sum).bits) << i << " of " << count;
      }
    }
    EXPECT_EQ(to[count].bits, 0x1234);
    std::vector<bfloat16> in_place = a;
    HWY_DYNAMIC_DISPATCH(AddBFloat16)(in_place.data(), b.data(), in_place.data(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(in_place[i].bits, to[i].bits) << i;
  }
}

TEST_P(VectorIoTest, TransformWorksInPlace) {
  std::vector<float> x(19);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const std::vector<float> before = x;
  HWY_DYNAMIC_DISPATCH(FloatToFloat)(x.data(), x.data(), x.size());
  EXPECT_EQ(x, before);
}

TEST_P(VectorIoTest, LoadPartialOrFillsTheOtherLanes) {
  for (size_t count = 1; count <= 40; ++count) {
    std::vector<float> x(count);
    std::vector<bfloat16> narrow(count);
    for (size_t i = 0; i < count; ++i) {
      x[i] = -1.0f - static_cast<float>((i * 7) % count);  // All negative: a zero would win.
      narrow[i].bits = static_cast<uint16_t>(BitsOfFloat(x[i]) >> 16);
    }
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(MaxOfFloat)(x.data(), count),
              *std::max_element(x.begin(), x.end()));
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(MaxOfBFloat16)(narrow.data(), count),
              *std::max_element(x.begin(), x.end()));
  }
}

}  // namespace
}  // namespace lockstep::cpu

#endif  // HWY_ONCE
