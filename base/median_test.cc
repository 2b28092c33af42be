// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/median.h"

#include <cmath>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(MedianTest, IsInTheMiddle) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({8, 1, 4, 2}), 3);
  EXPECT_EQ(Median({2, 1000, 1, 2, 3}), 2);
  EXPECT_TRUE(std::isnan(Median({})));
}

}  // namespace
}  // namespace lockstep
