// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/base/philox.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

// The known-answer vectors that the authors publish with Random123 (kat_vectors, philox4x32 10).
TEST(PhiloxTest, PublishedVectors) {
  EXPECT_THAT(Philox4x32Raw({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(
      Philox4x32Raw({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      Philox4x32Raw({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(PhiloxTest, PlacesSeedStreamAndBlock) {
  EXPECT_EQ(
      Philox4x32(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
      Philox4x32Raw({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}));
}

TEST(PhiloxTest, IsUsableAtCompileTime) {
  static_assert(Philox4x32(0, 0, 0)[0] == 0x6627e8d5);
  static_assert(UniformFloat(0x80000000) == 0.5f);
}

TEST(UniformTest, FloatSpansHalfOpenInterval) {
  EXPECT_EQ(UniformFloat(0), 0.0f);
  EXPECT_EQ(UniformFloat(0xff), 0.0f);
  EXPECT_EQ(UniformFloat(0x100), 0x1p-24f);
  EXPECT_EQ(UniformFloat(0x80000000), 0.5f);
  EXPECT_EQ(UniformFloat(0xffffffff), 1.0f - 0x1p-24f);
}

TEST(UniformTest, DoubleSpansHalfOpenInterval) {
  EXPECT_EQ(UniformDouble(0, 0), 0.0);
  EXPECT_EQ(UniformDouble(0, 0x40), 0x1p-53);
  EXPECT_EQ(UniformDouble(0x20, 0), 0x1p-27);
  EXPECT_EQ(UniformDouble(0x80000000, 0), 0.5);
  EXPECT_EQ(UniformDouble(0xffffffff, 0xffffffff), 1.0 - 0x1p-53);
}

TEST(NormalTest, ExtremeWordsStayFinite) {
  EXPECT_DOUBLE_EQ(NormalPair(0, 0)[0], std::sqrt(66.0 * std::log(2.0)));
  EXPECT_NEAR(NormalPair(0xffffffff, 0)[0], 0x1p-16, 1e-12);
  EXPECT_DOUBLE_EQ(NormalDoublePair(0, 0, 0, 0)[0], std::sqrt(106.0 * std::log(2.0)));
  EXPECT_EQ(NormalDoublePair(0xffffffff, 0xffffffff, 0, 0)[0], 0.0);
}

// A quarter turn moves the first normal into the second.
TEST(NormalTest, SecondArgumentIsTheAngle) {
  const auto start = NormalPair(0x12345678, 0x00000100);
  const auto quarter = NormalPair(0x12345678, 0x40000100);
  EXPECT_NEAR(quarter[0], -start[1], 1e-15);
  EXPECT_NEAR(quarter[1], start[0], 1e-15);
  const auto wide_start = NormalDoublePair(0x12345678, 9, 0x00000100, 77);
  const auto wide_quarter = NormalDoublePair(0x12345678, 9, 0x40000100, 77);
  EXPECT_NEAR(wide_quarter[0], -wide_start[1], 1e-15);
  EXPECT_NEAR(wide_quarter[1], wide_start[0], 1e-15);
}

// Computed by a separate NumPy implementation of the formulas in philox.h.
TEST(PhiloxTest, AgreesWithNumPy) {
  const std::array<uint32_t, 4> w = Philox4x32(0x0123456789abcdef, 5, 0x100000003);
  EXPECT_THAT(w, ElementsAre(0x1ad282b1, 0x12ad3ef3, 0x8bf75529, 0x350d96a8));
  EXPECT_EQ(UniformFloat(w[1]), 0x1.2ad3e00000000p-4f);
  EXPECT_EQ(UniformDouble(w[2], w[3]), 0x1.17eeaa4d4365ap-1);
  EXPECT_THAT(NormalPair(w[0], w[1]),
              ElementsAre(DoubleEq(0x1.e7a326b7e32a6p+0), DoubleEq(0x1.e14087bc69abfp-1)));
  EXPECT_THAT(NormalDoublePair(w[0], w[1], w[2], w[3]),
              ElementsAre(DoubleEq(-0x1.043eda351dc4bp+1), DoubleEq(-0x1.3ad58569da650p-1)));
}

TEST(PhiloxTest, NeighboursDiffer) {
  std::set<uint32_t> words;
  for (const uint64_t seed : {7, 8}) {
    for (const uint64_t stream : {1, 2}) {
      for (uint64_t block = 0; block < 64; ++block) {
        for (const uint32_t word : Philox4x32(seed, stream, block)) words.insert(word);
      }
    }
  }
  EXPECT_EQ(words.size(), 1024u);
}

// Mean, variance and the covariance of neighbours over 2^18 draws. The numbers are fixed, so that
// this cannot turn flaky; the bounds are five standard errors.
template <typename Draw>
void ExpectMoments(Draw draw, double mean, double variance) {
  constexpr int kPairs = 1 << 17;
  double sum = 0.0;
  double squares = 0.0;
  double products = 0.0;
  for (uint64_t block = 0; block < kPairs; ++block) {
    const std::array<double, 2> x = draw(Philox4x32(42, 3, block));
    sum += x[0] + x[1];
    squares += (x[0] - mean) * (x[0] - mean) + (x[1] - mean) * (x[1] - mean);
    products += (x[0] - mean) * (x[1] - mean);
  }
  const double error = 5.0 / std::sqrt(2.0 * kPairs);
  EXPECT_NEAR(sum / (2.0 * kPairs), mean, error * std::sqrt(variance));
  EXPECT_NEAR(squares / (2.0 * kPairs), variance, error * variance * std::sqrt(2.0));
  EXPECT_NEAR(products / kPairs, 0.0, error * variance * std::sqrt(2.0));
}

TEST(PhiloxTest, MomentsAreRight) {
  using Words = std::array<uint32_t, 4>;
  ExpectMoments(
      [](const Words& w) {
        return std::array<double, 2>{UniformFloat(w[0]), UniformFloat(w[1])};
      },
      0.5, 1.0 / 12.0);
  ExpectMoments(
      [](const Words& w) {
        return std::array<double, 2>{UniformDouble(w[0], w[1]), UniformDouble(w[2], w[3])};
      },
      0.5, 1.0 / 12.0);
  ExpectMoments([](const Words& w) { return NormalPair(w[2], w[3]); }, 0.0, 1.0);
  ExpectMoments([](const Words& w) { return NormalDoublePair(w[0], w[1], w[2], w[3]); }, 0.0, 1.0);
}

}  // namespace
}  // namespace lockstep
