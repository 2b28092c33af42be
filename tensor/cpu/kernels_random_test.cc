// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Random ops against the mapping that tensor/random.h states.
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/philox.h"
#include "lockstep/tensor/cpu/kernel_testing.h"
#include "lockstep/tensor/cpu/random_words.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/random.h"

namespace lockstep::cpu {
namespace {

constexpr RandomKey kKey = {0x123456789abcdef0u, 0xfedcba9876543210u, 40};

uint32_t WordOf(const RandomKey& key, int64_t i) {
  const uint64_t position = key.offset + static_cast<uint64_t>(i);
  return Philox4x32(key.seed, key.stream, position / 4)[position % 4];
}

Scalars WithKey(std::initializer_list<double> values, const RandomKey& key) {
  Scalars scalars(values.begin(), values.end());
  for (const uint64_t part : {key.seed, key.stream, key.offset}) {
    scalars.push_back(static_cast<int64_t>(part));
  }
  return scalars;
}

Tensor Create(OpId op, const Shape& shape, DType dtype, double a, double b, const RandomKey& key) {
  CreateAttributes attributes;
  attributes.shape = shape;
  attributes.dtype = dtype;
  return Dispatch1(op, {}, WithKey({a, b}, key), attributes);
}

TEST(RandomWords, EveryBeginAndCount) {
  for (const uint64_t offset : {uint64_t{0}, uint64_t{40}, (uint64_t{1} << 34) - 12}) {
    const RandomKey key = {kKey.seed, kKey.stream, offset};
    for (int64_t begin = 0; begin < 9; ++begin) {
      for (const int64_t count : {0, 1, 2, 3, 4, 5, 7, 31, 32, 33, 64, 65, 100}) {
        std::vector<uint32_t> words(static_cast<size_t>(count) + 1, 77);
        RandomWords(key, begin, count, words.data());
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(words[i], WordOf(key, begin + i)) << begin;
        EXPECT_EQ(words[count], 77u);
      }
    }
  }
}

TEST(RandomKernels, Uniform) {
  for (const int64_t size : {0, 1, 3, 5, 17, 1000, 40003}) {
    const Tensor x = Create(OpId::kRandomUniform, {size}, DType::kFloat32, 0, 1, kKey);
    const std::vector<float> values = x.ToVector<float>();
    for (int64_t i = 0; i < size; ++i) {
      ASSERT_EQ(values[i], static_cast<float>(WordOf(kKey, i) >> 8) * 0x1p-24f) << i;
    }
    const Tensor d = Create(OpId::kRandomUniform, {size}, DType::kFloat64, 0, 1, kKey);
    const std::vector<double> doubles = d.ToVector<double>();
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(doubles[i], WordOf(kKey, i) * 0x1p-32) << i;
  }
}

TEST(RandomKernels, UniformStaysBelowHighInEveryDType) {
  for (const DType dtype : kFloatDTypes) {
    for (const auto& [low, high] : {std::pair{0.0, 1.0}, {1.0, 2.0}, {-2.0, -1.0}, {-1.0, 0.0}}) {
      double smallest = high;
      double largest = low;
      for (const double v :
           Create(OpId::kRandomUniform, {200000}, dtype, low, high, kKey).ToVector<double>()) {
        smallest = std::min(smallest, v);
        largest = std::max(largest, v);
      }
      EXPECT_GE(smallest, low) << DTypeName(dtype);
      EXPECT_LT(largest, high) << DTypeName(dtype) << " " << low;
      EXPECT_LT(smallest, low + 0.01);
      EXPECT_GT(largest, high - 0.01);
    }
  }
}

TEST(RandomKernels, Normal) {
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t size : {0, 1, 3, 5, 17, 1000, 10003}) {
      std::vector<double> expected;
      for (int64_t i = 0; i < size; ++i) {
        const double u = (WordOf(kKey, i / 2 * 2) + 0.5) * 0x1p-32;
        const double v = (WordOf(kKey, i / 2 * 2 + 1) + 0.5) * 0x1p-32;
        const double r = std::sqrt(-2 * std::log(u));
        const double z = i % 2 == 0 ? r * std::cos(2 * M_PI * v) : r * std::sin(2 * M_PI * v);
        expected.push_back(0.5 + 2 * z);
      }
      ExpectClose(Create(OpId::kRandomNormal, {size}, dtype, 0.5, 2, kKey), expected,
                  RoundingUnit(dtype) + 1e-14, "RandomNormal", 1e-3);
    }
  }
}

TEST(RandomKernels, DropoutKeepsAndScales) {
  for (const DType dtype : kFloatDTypes) {
    for (const double p : {0.0, 0.1, 0.5, 1.0}) {
      const Tensor packed = MakeTensor(Numbers(5 * 7 * 130, 1, 2), {5, 7, 130}, dtype);
      std::vector<double> expected = packed.ToVector<double>();
      for (int64_t i = 0; i < packed.numel(); ++i) {
        const bool kept = (WordOf(kKey, i) >> 8) * 0x1p-24 >= p;
        expected[i] = kept ? expected[i] / (1 - p) : 0;
      }
      // Element i of the row-major order, whatever the strides.
      for (const Tensor& x : Layouts(packed)) {
        ExpectClose(Dispatch1(OpId::kDropout, {x}, WithKey({p}, kKey)), expected,
                    RoundingUnit(dtype) + 2e-7, "Dropout");
        const Tensor y = Clone(x);
        DispatchInPlace(OpId::kDropout, {y}, WithKey({p}, kKey));
        ExpectClose(y, expected, RoundingUnit(dtype) + 2e-7, "Dropout in place");
      }
    }
  }
}

TEST(RandomKernels, ThreadsDoNotChangeResults) {
  const Tensor x = MakeTensor(Numbers(301 * 333, 1, 2), {301, 333}, DType::kFloat32);
  ExpectSameForThreads("Dropout", [&] {
    return Dispatch1(OpId::kDropout, {Transpose(x, 0, 1)}, WithKey({0.3}, kKey));
  });
  for (const OpId op : {OpId::kRandomUniform, OpId::kRandomNormal}) {
    ExpectSameForThreads("random",
                         [&] { return Create(op, {100003}, DType::kFloat32, 0, 1, kKey); });
  }
}

}  // namespace
}  // namespace lockstep::cpu
