// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/rounding.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

static_assert(RoundUp(5, 4) == 8, "usable in constants");

TEST(RoundingTest, IsTheLeastThatIsEnough) {
  for (int64_t unit = 1; unit <= 9; ++unit) {
    for (int64_t value = 0; value <= 40; ++value) {
      int64_t units = 0;
      while (units * unit < value) ++units;
      EXPECT_EQ(CeilDiv(value, unit), units) << value << " / " << unit;
      EXPECT_EQ(RoundUp(value, unit), units * unit) << value << " / " << unit;
    }
  }
}

TEST(RoundingTest, DoesNotOverflowOnTheWay) {
  EXPECT_EQ(CeilDiv(INT64_MAX, 1), INT64_MAX);
  EXPECT_EQ(CeilDiv(INT64_MAX, 2), INT64_MAX / 2 + 1);
  EXPECT_EQ(CeilDiv(INT64_MAX, INT64_MAX), 1);
  EXPECT_EQ(RoundUp(INT64_MAX - 63, 64), INT64_MAX - 63);
}

}  // namespace
}  // namespace lockstep
