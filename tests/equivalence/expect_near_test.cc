// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tests/equivalence/expect_near.h"

#include <limits>
#include <vector>

#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"

namespace lockstep::equivalence {
namespace {

TEST(ExpectNearTest, BoundsAreOfTheLargestValue) {
  ExpectNear(std::vector<double>{1.25, -4}, {1, -4}, 0.125);
  EXPECT_FATAL_FAILURE(ExpectNear(std::vector<double>{1.5, -4}, {1, -4}, 0.0625, "a"), "a, 0");
  EXPECT_FATAL_FAILURE(ExpectNear(std::vector<double>{1}, {1, -4}, 1, "a"), "a");
  EXPECT_FATAL_FAILURE(
      ExpectNear(std::vector<double>{std::numeric_limits<double>::quiet_NaN()}, {1}, 1), "values");
}

TEST(ExpectNearTest, ParametersAreBoundedByTheirTensorOrTheModel) {
  const Result wanted = {{2, 1}, {1}, {8}};
  ExpectNear(Result{{2.5, 1.25}, {1.25}, {10}}, wanted, {.loss = 0.25, .parameter = 0.25});
  const Result far = {{2, 1}, {2}, {8}};
  ExpectNear(far, wanted, {.parameter = 0.25, .of_model = true});
  EXPECT_FATAL_FAILURE(
      ExpectNear(Result({{2, 1}, {2}, {8}}), Result({{2, 1}, {1}, {8}}), {.parameter = 0.25}),
      "parameter 1, 0");
  EXPECT_NONFATAL_FAILURE(
      ExpectNear(Result({{2, 1.5}, {1}}), Result({{2, 1}, {1}}), {.loss = 0.25}), "loss 1");
  EXPECT_FATAL_FAILURE(ExpectNear(Result({{2, 1}}), Result({{2, 1}, {1}}), {}), "size");
}

}  // namespace
}  // namespace lockstep::equivalence
