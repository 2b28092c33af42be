// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/schedules/warmup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/base/testing.h"

namespace lockstep::optim {
namespace {

using ::testing::HasSubstr;

// The rates of the first steps of a group with `lr` 0.5.
std::vector<double> Rates(const ScheduleFunction& schedule, int64_t steps) {
  std::vector<double> rates;
  for (int64_t step = 0; step < steps; ++step) rates.push_back(schedule.LearningRate(step, 1, 0.5));
  return rates;
}

void ExpectRates(const ScheduleFunction& schedule, const std::vector<double>& expected) {
  const std::vector<double> rates = Rates(schedule, static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(rates[i], expected[i], 1e-15) << i;
}

TEST(WarmupTest, LineThenConstant) {
  // Iterations 0 to 3 before steps 1 to 4: 0.1 + 0.8 * i / 4.
  ExpectRates(WarmupLr({.warmup_min_lr = 0.1,
                        .warmup_max_lr = 0.9,
                        .warmup_num_steps = 4,
                        .warmup_type = WarmupType::kLinear}),
              {0.1, 0.1, 0.3, 0.5, 0.7, 0.9, 0.9, 0.9});
}

TEST(WarmupTest, LogarithmThenConstant) {
  // log(i + 1) / log(8): 1, 2, 4 and 8 are thirds.
  const std::vector<double> rates =
      Rates(WarmupLr({.warmup_max_lr = 3, .warmup_num_steps = 8}), 12);
  EXPECT_EQ(rates[0], 0);
  EXPECT_EQ(rates[1], 0);
  EXPECT_NEAR(rates[2], 1, 1e-15);
  EXPECT_NEAR(rates[3], 3 * std::log(3.0) / std::log(8.0), 1e-15);
  EXPECT_NEAR(rates[4], 2, 1e-15);
  EXPECT_NEAR(rates[8], 3, 1e-15);
  EXPECT_EQ(rates[9], 3);
  EXPECT_EQ(rates[11], 3);
}

TEST(WarmupTest, AtLeastTwoIterations) {
  for (const int64_t steps : {0, 1, 2}) {
    ExpectRates(
        WarmupLr(
            {.warmup_max_lr = 1, .warmup_num_steps = steps, .warmup_type = WarmupType::kLinear}),
        {0, 0, 0.5, 1, 1});
  }
}

TEST(WarmupTest, DecaysToTheMinimum) {
  ExpectRates(WarmupDecayLr({.warmup_min_lr = 0.2,
                             .warmup_max_lr = 1,
                             .warmup_num_steps = 2,
                             .warmup_type = WarmupType::kLinear,
                             .total_num_steps = 6}),
              {0.2, 0.2, 0.6, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
  ExpectRates(WarmupDecayLr({.warmup_max_lr = 1,
                             .warmup_num_steps = 3,
                             .warmup_type = WarmupType::kLinear,
                             .total_num_steps = 3}),
              {0, 0, 1.0 / 3, 2.0 / 3, 0, 0});
}

TEST(WarmupTest, CosineOfEachGroupsRate) {
  const double third = (1 + std::cos(M_PI / 3)) / 2, two_thirds = (1 + std::cos(2 * M_PI / 3)) / 2;
  ExpectRates(WarmupCosineLr({.warmup_min_ratio = 0.2,
                              .warmup_num_steps = 2,
                              .warmup_type = WarmupType::kLinear,
                              .cos_min_ratio = 0.1,
                              .total_num_steps = 5}),
              {0, 0.5 * 0.2, 0.5 * 0.6, 0.5 * (0.1 + 0.9 * third), 0.5 * (0.1 + 0.9 * two_thirds),
               0.5 * 0.1, 0.5 * 0.1, 0.5 * 0.1});
}

TEST(WarmupTest, Refuses) {
  EXPECT_THAT(MessageOf([] { WarmupLr({.warmup_min_lr = -1}); }), HasSubstr("warmup_min_lr is -1"));
  EXPECT_THAT(MessageOf([] { WarmupLr({.warmup_max_lr = INFINITY}); }), HasSubstr("is inf"));
  EXPECT_THAT(MessageOf([] { WarmupLr({.warmup_num_steps = -1}); }), HasSubstr("is -1"));
  EXPECT_EQ(MessageOf([] { WarmupDecayLr({.warmup_num_steps = 10, .total_num_steps = 9}); }),
            "WarmupDecayLr: total_num_steps is 9; the warm-up alone has 10");
  EXPECT_THAT(MessageOf([] { WarmupCosineLr({.warmup_num_steps = 10, .total_num_steps = 10}); }),
              HasSubstr("total_num_steps is 10; it is above the 10"));
  EXPECT_THAT(MessageOf([] { WarmupCosineLr({.cos_min_ratio = 2, .total_num_steps = 9999}); }),
              HasSubstr("cos_min_ratio is 2"));
  EXPECT_THAT(MessageOf([] { WarmupCosineLr({.warmup_min_ratio = NAN, .total_num_steps = 9999}); }),
              HasSubstr("warmup_min_ratio is nan"));
}

}  // namespace
}  // namespace lockstep::optim
