// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/creation.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "lockstep/tensor/ops/testing.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

using testing_util::Describe;
using testing_util::ExpectInvalid;
using testing_util::Meta;
using testing_util::Recorder;

constexpr TensorOptions kOnMeta{.dtype = std::nullopt, .device = kMeta};
constexpr double kInf = std::numeric_limits<double>::infinity();

TensorOptions OnMeta(DType dtype) { return {.dtype = dtype, .device = kMeta}; }

TEST(CreationTest, FullTakesTheDTypeOfTheScalar) {
  EXPECT_EQ(Describe(Full({3, 5}, 1.5, kOnMeta)), "float32[3, 5]");
  EXPECT_EQ(Describe(Full({3}, 2, kOnMeta)), "int64[3]");
  EXPECT_EQ(Describe(Full({}, true, kOnMeta)), "bool[]");
  EXPECT_EQ(Describe(Full({0, 3}, 2, OnMeta(DType::kFloat16))), "float16[0, 3]");
  EXPECT_EQ(Describe(Zeros({2}, kOnMeta)), "float32[2]");
  EXPECT_EQ(Describe(Ones({2}, OnMeta(DType::kUInt8))), "uint8[2]");
}

TEST(CreationTest, CurrentDeviceAndLike) {
  DeviceScope scope(kMeta);
  EXPECT_EQ(Zeros({3}).device(), kMeta);
  const Tensor x = Meta({3, 5}, DType::kBFloat16);
  EXPECT_EQ(Describe(FullLike(x, 1)), "bfloat16[3, 5]");
  EXPECT_EQ(Describe(ZerosLike(x)), "bfloat16[3, 5]");
  EXPECT_EQ(Describe(OnesLike(x)), "bfloat16[3, 5]");
  ExpectInvalid("FullLike: tensor is undefined; pass a tensor", [] { FullLike(Tensor(), 1); });
  ExpectInvalid("ZerosLike: tensor is undefined", [] { ZerosLike(Tensor()); });
  ExpectInvalid("OnesLike: tensor is undefined", [] { OnesLike(Tensor()); });
}

TEST(CreationTest, RefusesSizesAndValuesThatDoNotFit) {
  ExpectInvalid("Zeros: negative size -1 in shape [3, -1]", [] { Zeros({3, -1}, kOnMeta); });
  ExpectInvalid("Full: value 256 does not fit dtype uint8 (0 to 255)",
                [] { Full({3}, 256, OnMeta(DType::kUInt8)); });
  ExpectInvalid("value -1 does not fit", [] { Full({3}, -1, OnMeta(DType::kUInt8)); });
  ExpectInvalid("value 3e+09 does not fit dtype int32",
                [] { Full({3}, 3e9, OnMeta(DType::kInt32)); });
  ExpectInvalid("value nan does not fit", [] { Full({3}, std::nan(""), OnMeta(DType::kInt64)); });
  ExpectInvalid("value 9.22337e+18 does not fit", [] { Full({3}, 0x1p63, OnMeta(DType::kInt64)); });
  EXPECT_EQ(Describe(Full({3}, 255.9, OnMeta(DType::kUInt8))), "uint8[3]");
  EXPECT_EQ(Describe(Full({3}, -0x1p63, OnMeta(DType::kInt64))), "int64[3]");
  EXPECT_EQ(Describe(Full({3}, kInf, OnMeta(DType::kFloat16))), "float16[3]");
}

TEST(CreationTest, Arange) {
  EXPECT_EQ(Describe(Arange(5, kOnMeta)), "int64[5]");
  EXPECT_EQ(Describe(Arange(0, kOnMeta)), "int64[0]");
  EXPECT_EQ(Describe(Arange(2, 9, 3, kOnMeta)), "int64[3]");
  EXPECT_EQ(Describe(Arange(9, 2, -3, kOnMeta)), "int64[3]");
  EXPECT_EQ(Describe(Arange(3, 9, 3, kOnMeta)), "int64[2]");
  EXPECT_EQ(Describe(Arange(0, 1, 0.25, kOnMeta)), "float32[4]");
  EXPECT_EQ(Describe(Arange(0.0, 1.1, 0.25, kOnMeta)), "float32[5]");
  EXPECT_EQ(Describe(Arange(5, OnMeta(DType::kFloat64))), "float64[5]");
  EXPECT_EQ(Describe(Arange(256, OnMeta(DType::kUInt8))), "uint8[256]");
  EXPECT_EQ(Describe(Arange(INT64_MAX - 2, INT64_MAX, 1, kOnMeta)), "int64[2]");
  ExpectInvalid("step is 0", [] { Arange(0, 5, 0, kOnMeta); });
  ExpectInvalid("step points away from end (start 0, end 5, step -1)",
                [] { Arange(0, 5, -1, kOnMeta); });
  ExpectInvalid("step points away", [] { Arange(-1, kOnMeta); });
  ExpectInvalid("step points away", [] { Arange(0.0, -1.0, 0.5, kOnMeta); });
  ExpectInvalid("value 256 does not fit dtype uint8", [] { Arange(257, OnMeta(DType::kUInt8)); });
  ExpectInvalid("dtype bool cannot hold a range", [] { Arange(2, OnMeta(DType::kBool)); });
  ExpectInvalid("nan is not a finite number", [] { Arange(std::nan(""), kOnMeta); });
  ExpectInvalid("more elements", [] { Arange(INT64_MIN, INT64_MAX, 1, kOnMeta); });
  ExpectInvalid("more elements", [] { Arange(0.0, 1e30, 1e-30, kOnMeta); });
}

TEST(CreationTest, RandomNumbersDrawTheirKey) {
  ManualSeed(~uint64_t{6});
  Recorder recorder;
  const RandomOptions on_meta{.generator = nullptr, .tensor = kOnMeta};
  EXPECT_EQ(Describe(RandomUniform({3, 3}, -1, 1, on_meta)), "float32[3, 3]");
  EXPECT_EQ(ThreadGenerators().data.key.offset, 12u);  // 9 rounded up to 4
  RandomNormal({2}, 0, 1, on_meta);
  EXPECT_EQ(ThreadGenerators().data.key.offset, 16u);
  ASSERT_EQ(recorder.calls().size(), 2u);
  const Scalars& first = recorder.calls()[0].scalars;
  EXPECT_EQ(first[0].AsDouble(), -1);
  EXPECT_EQ(first[1].AsDouble(), 1);
  EXPECT_EQ(first[2].AsUInt64(), ~uint64_t{6});  // all bits arrive
  EXPECT_EQ(first[3].AsUInt64(), kDataStream);
  EXPECT_EQ(first[4].AsUInt64(), 0u);
  EXPECT_EQ(recorder.calls()[1].scalars[4].AsUInt64(), 12u);
  EXPECT_EQ(ThreadGenerators().parameters.key.offset, 0u);
}

TEST(CreationTest, RandomNumbersFromAGivenGenerator) {
  Generator generator{{7, 3, 8}};
  const uint64_t before = ThreadGenerators().data.key.offset;
  const RandomOptions options{.generator = &generator, .tensor = OnMeta(DType::kFloat64)};
  EXPECT_EQ(Describe(RandomNormal({5}, 0, 1, options)), "float64[5]");
  EXPECT_EQ(generator.key.offset, 16u);
  RandomUniform({0}, 0, 1, options);
  EXPECT_EQ(generator.key.offset, 16u);
  EXPECT_EQ(ThreadGenerators().data.key.offset, before);
}

TEST(CreationTest, RefusedRandomCallsLeaveTheGenerator) {
  Generator generator{{7, 3, 8}};
  const RandomOptions options{.generator = &generator, .tensor = kOnMeta};
  const RandomOptions integers{.generator = &generator, .tensor = OnMeta(DType::kInt32)};
  ExpectInvalid("RandomUniform: the range [1, 0)", [&] { RandomUniform({3}, 1, 0, options); });
  ExpectInvalid("the range", [&] { RandomUniform({3}, 0, kInf, options); });
  ExpectInvalid("the range", [&] { RandomUniform({3}, std::nan(""), 1, options); });
  ExpectInvalid("RandomNormal: mean 0 and std -1", [&] { RandomNormal({3}, 0, -1, options); });
  ExpectInvalid("dtype int32 is not a floating-point dtype",
                [&] { RandomNormal({3}, 0, 1, integers); });
  ExpectInvalid("negative size -3", [&] { RandomNormal({-3}, 0, 1, options); });
  ExpectInvalid("more bytes than", [&] { RandomNormal({int64_t{1} << 62}, 0, 1, options); });
  EXPECT_EQ(generator.key, (RandomKey{7, 3, 8}));
}

}  // namespace
}  // namespace lockstep
