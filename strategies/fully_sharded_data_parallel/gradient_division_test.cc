// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/gradient_division.h"

#include <map>

#include "gtest/gtest.h"

namespace lockstep::strategies {
namespace {

using comm::ReduceOp;

// What the sum over all ranks is multiplied by in all.
double WholeFactor(const GradientDivision& division) { return division.factor * division.after; }

TEST(GradientDivisionTest, IsAnAverageOtherwise) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const GradientDivision division = DivideGradients(ranks, std::nullopt, dtype);
      EXPECT_EQ(division.op, ReduceOp::kAverage);
      EXPECT_EQ(division.replicate_op, ReduceOp::kAverage);
      EXPECT_EQ(division.factor, 1);
      EXPECT_EQ(division.after, 1);
    }
  }
}

// The first numbers are those of PyTorch's FSDP.
TEST(GradientDivisionTest, IsSplitInFloat16) {
  const std::map<int, int> before = {{8, 4}, {16, 4}, {6, 4}, {3, 2}, {1, 1},  {2, 2},
                                     {4, 2}, {5, 2},  {7, 2}, {9, 2}, {12, 4}, {64, 8}};
  for (const auto& [ranks, divisor] : before) {
    const GradientDivision division = DivideGradients(ranks, std::nullopt, DType::kFloat16);
    EXPECT_EQ(division.op, ReduceOp::kPreMultipliedSum);
    EXPECT_EQ(division.replicate_op, ReduceOp::kSum);
    EXPECT_EQ(1 / division.factor, divisor) << ranks << " ranks";
    EXPECT_DOUBLE_EQ(WholeFactor(division), 1.0 / ranks) << ranks << " ranks";
  }
}

TEST(GradientDivisionTest, DividesBySomethingElse) {
  const GradientDivision plain = DivideGradients(4, 3.0, DType::kFloat32);
  EXPECT_EQ(plain.op, ReduceOp::kPreMultipliedSum);
  EXPECT_EQ(plain.replicate_op, ReduceOp::kSum);
  EXPECT_EQ(plain.factor, 1.0 / 3);
  EXPECT_EQ(plain.after, 1);
  // 1: the sum.
  EXPECT_EQ(DivideGradients(4, 1.0, DType::kBFloat16).factor, 1);
  for (const double divisor : {0.5, 1.0, 3.0, 1024.0}) {
    const GradientDivision half = DivideGradients(8, divisor, DType::kFloat16);
    EXPECT_EQ(half.factor, 0.25);
    EXPECT_DOUBLE_EQ(WholeFactor(half), 1 / divisor);
  }
}

}  // namespace
}  // namespace lockstep::strategies
