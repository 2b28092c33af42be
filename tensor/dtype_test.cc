// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/dtype.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

uint16_t Half(float value) { return ToFloat16(value).bits; }
float FromHalf(uint16_t bits) { return ToFloat(float16{bits}); }

TEST(DTypeTest, NamesParseBack) {
  const std::string names[] = {"float32", "bfloat16", "float16", "float64",
                               "int64",   "int32",    "uint8",   "bool"};
  for (int i = 0; i < kDTypeCount; ++i) {
    EXPECT_EQ(DTypeName(static_cast<DType>(i)), names[i]);
    EXPECT_EQ(ParseDType(names[i]), static_cast<DType>(i));
  }
  for (const char* bad : {"", "float", "Float32", "float32 ", "int16"}) {
    try {
      ParseDType(bad);
      FAIL() << "accepted '" << bad << "'";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(e.message(), HasSubstr("bfloat16, float16"));
    }
  }
}

TEST(DTypeTest, ItemSizesMatchTheCppTypes) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    VisitDType(dtype, [&]<typename T>(TypeTag<T>) {
      EXPECT_EQ(ItemSize(dtype), static_cast<int64_t>(sizeof(T)));
      EXPECT_EQ(kDTypeOf<T>, dtype);
    });
  }
}

// The table that torch.promote_types prints, in the order of the enum: f4 = float32, b2 =
// bfloat16, f2 = float16, f8 = float64, i8, i4, u1 and b1 = bool.
TEST(DTypeTest, PromotionTable) {
  constexpr DType f4 = DType::kFloat32, b2 = DType::kBFloat16, f2 = DType::kFloat16,
                  f8 = DType::kFloat64, i8 = DType::kInt64, i4 = DType::kInt32, u1 = DType::kUInt8,
                  b1 = DType::kBool;
  constexpr DType kTable[8][8] = {
      {f4, f4, f4, f8, f4, f4, f4, f4},  // float32
      {f4, b2, f4, f8, b2, b2, b2, b2},  // bfloat16
      {f4, f4, f2, f8, f2, f2, f2, f2},  // float16
      {f8, f8, f8, f8, f8, f8, f8, f8},  // float64
      {f4, b2, f2, f8, i8, i8, i8, i8},  // int64
      {f4, b2, f2, f8, i8, i4, i4, i4},  // int32
      {f4, b2, f2, f8, i8, i4, u1, u1},  // uint8
      {f4, b2, f2, f8, i8, i4, u1, b1},  // bool
  };
  for (int a = 0; a < 8; ++a) {
    for (int b = 0; b < 8; ++b) {
      EXPECT_EQ(PromoteTypes(static_cast<DType>(a), static_cast<DType>(b)), kTable[a][b])
          << DTypeName(static_cast<DType>(a)) << " with " << DTypeName(static_cast<DType>(b));
    }
  }
}

// torch.result_type(tensor, number) for 1.5, 2 and True.
TEST(DTypeTest, ScalarsPromoteByKindOnly) {
  constexpr DType f4 = DType::kFloat32, b2 = DType::kBFloat16, f2 = DType::kFloat16,
                  f8 = DType::kFloat64, i8 = DType::kInt64, i4 = DType::kInt32, u1 = DType::kUInt8,
                  b1 = DType::kBool;
  constexpr DType kWithDouble[8] = {f4, b2, f2, f8, f4, f4, f4, f4};
  constexpr DType kWithInt[8] = {f4, b2, f2, f8, i8, i4, u1, i8};
  constexpr DType kWithBool[8] = {f4, b2, f2, f8, i8, i4, u1, b1};
  for (int i = 0; i < 8; ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_EQ(PromoteWithScalar(dtype, 1.5), kWithDouble[i]) << DTypeName(dtype);
    EXPECT_EQ(PromoteWithScalar(dtype, 1.5f), kWithDouble[i]) << DTypeName(dtype);
    EXPECT_EQ(PromoteWithScalar(dtype, 2), kWithInt[i]) << DTypeName(dtype);
    EXPECT_EQ(PromoteWithScalar(dtype, int64_t{1} << 40), kWithInt[i]) << DTypeName(dtype);
    EXPECT_EQ(PromoteWithScalar(dtype, true), kWithBool[i]) << DTypeName(dtype);
  }
  EXPECT_EQ(DefaultDType(0.5), f4);
  EXPECT_EQ(DefaultDType(3), i8);
  EXPECT_EQ(DefaultDType(false), b1);
}

TEST(ScalarTest, Conversions) {
  EXPECT_EQ(Scalar(-2.75).AsInt64(), -2);
  EXPECT_EQ(Scalar(1e300).AsInt64(), INT64_MAX);
  EXPECT_EQ(Scalar(-1e300).AsInt64(), INT64_MIN);
  EXPECT_EQ(Scalar(std::nan("")).AsInt64(), 0);
  EXPECT_EQ(Scalar(INT64_MIN).AsInt64(), INT64_MIN);
  EXPECT_EQ(Scalar(static_cast<int64_t>(~uint64_t{5})).AsUInt64(), ~uint64_t{5});
  EXPECT_EQ(Scalar(true).AsDouble(), 1.0);
  EXPECT_TRUE(Scalar(0.5).AsBool());
  EXPECT_FALSE(Scalar(0).AsBool());
}

TEST(Float16Test, EveryValueConvertsBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = FromHalf(half);
    const bool is_nan = (half & 0x7fff) > 0x7c00;
    ASSERT_EQ(std::isnan(value), is_nan) << bits;
    if (is_nan) {
      ASSERT_TRUE(std::isnan(FromHalf(Half(value)))) << bits;
    } else {
      ASSERT_EQ(Half(value), half) << bits;
    }
  }
}

TEST(Float16Test, KnownValues) {
  EXPECT_EQ(FromHalf(0x3c00), 1.0f);
  EXPECT_EQ(FromHalf(0xc000), -2.0f);
  EXPECT_EQ(FromHalf(0x7bff), 65504.0f);
  EXPECT_EQ(FromHalf(0x0400), 0x1p-14f);  // smallest normal
  EXPECT_EQ(FromHalf(0x03ff), 1023 * 0x1p-24f);
  EXPECT_EQ(FromHalf(0x0001), 0x1p-24f);  // smallest denormal
  EXPECT_EQ(FromHalf(0x7c00), kInf);
  EXPECT_EQ(FromHalf(0xfc00), -kInf);
  EXPECT_EQ(Half(-0.0f), 0x8000);
  EXPECT_EQ(Half(kInf), 0x7c00);
  EXPECT_EQ(Half(-kInf), 0xfc00);
  EXPECT_EQ(Half(65519.0f), 0x7bff);
  EXPECT_EQ(Half(65520.0f), 0x7c00);  // half way to 65536: even is infinity
  EXPECT_EQ(Half(1e10f), 0x7c00);
  EXPECT_EQ(Half(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(Half(0x1p-25f), 0);  // half way to the smallest denormal: even is 0
  EXPECT_EQ(Half(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(Half(std::nanf("")) & 0x7e00, 0x7e00);
}

// Between each two neighbours: below the middle goes down, above goes up, the middle to even.
TEST(Float16Test, RoundsToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = FromHalf(bits);
    const float high = FromHalf(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;
    const uint16_t even = static_cast<uint16_t>(bits + (bits & 1));
    for (const uint16_t sign : {0x0000, 0x8000}) {
      const float factor = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(Half(factor * std::nextafter(middle, low)), bits | sign) << bits;
      ASSERT_EQ(Half(factor * middle), even | sign) << bits;
      ASSERT_EQ(Half(factor * std::nextafter(middle, high)), (bits + 1) | sign) << bits;
    }
  }
}

TEST(BFloat16Test, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const float low = ToFloat(bfloat16{static_cast<uint16_t>(bits)});
    const float high = ToFloat(bfloat16{static_cast<uint16_t>(bits + 1)});
    const float middle = static_cast<float>((static_cast<double>(low) + high) / 2);
    ASSERT_EQ(ToBFloat16(low).bits, bits);
    ASSERT_EQ(ToBFloat16(std::nextafter(middle, low)).bits, bits);
    ASSERT_EQ(ToBFloat16(middle).bits, bits + (bits & 1));
    ASSERT_EQ(ToBFloat16(std::nextafter(middle, high)).bits, bits + 1);
    ASSERT_EQ(ToBFloat16(-middle).bits, (bits + (bits & 1)) | 0x8000);
  }
  EXPECT_EQ(ToBFloat16(kInf).bits, 0x7f80);
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::nanf("")))));
}

}  // namespace
}  // namespace lockstep
