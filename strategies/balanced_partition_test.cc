// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/balanced_partition.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BalancedPartition, EqualCostsGiveEvenCountsAndTheFirstPartsTheRest) {
  EXPECT_THAT(BalancedPartition(std::vector<double>(12, 0.1), 5), ElementsAre(3, 3, 2, 2, 2));
  EXPECT_THAT(BalancedPartition(std::vector<double>(12, 1e200), 4), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(BalancedPartition(std::vector<double>(4, 0), 3), ElementsAre(2, 1, 1));
  EXPECT_THAT(BalancedPartition({7}, 1), ElementsAre(1));
  EXPECT_THAT(BalancedPartition({7, 0, 0}, 3), ElementsAre(1, 1, 1));
}

TEST(BalancedPartition, TheCostliestPartIsAsCheapAsItCanBe) {
  EXPECT_THAT(BalancedPartition({1, 1, 1, 1, 4}, 2), ElementsAre(4, 1));
  EXPECT_THAT(BalancedPartition({5, 5, 5, 15}, 2), ElementsAre(3, 1));
  // The largest part is 9 either way; the even one is taken.
  EXPECT_THAT(BalancedPartition({9, 1, 1, 1, 1}, 3), ElementsAre(1, 2, 2));
  EXPECT_THAT(BalancedPartition({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3), ElementsAre(5, 2, 2));
}

// The smallest largest part, by trying every cut.
double LargestByTrying(const std::vector<double>& costs, size_t from, int parts) {
  double sum = 0;
  double best = std::numeric_limits<double>::infinity();
  for (size_t to = from + 1; to <= costs.size(); ++to) {
    sum += costs[to - 1];
    if (parts == 1) continue;
    if (costs.size() - to < static_cast<size_t>(parts - 1)) break;
    best = std::min(best, std::max(sum, LargestByTrying(costs, to, parts - 1)));
  }
  return parts == 1 ? sum : best;
}

TEST(BalancedPartition, EqualsTryingEveryCut) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<double> costs(1 + random() % 9);
    for (double& cost : costs) cost = random() % 20;
    const int parts = 1 + random() % costs.size();
    const std::vector<int64_t> counts = BalancedPartition(costs, parts);
    ASSERT_EQ(counts.size(), static_cast<size_t>(parts));
    size_t from = 0;
    double largest = 0;
    for (int64_t count : counts) {
      ASSERT_GE(count, 1);
      double sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += costs[from++];
      largest = std::max(largest, sum);
    }
    EXPECT_EQ(from, costs.size());
    EXPECT_EQ(largest, LargestByTrying(costs, 0, parts)) << round;
  }
}

void ExpectRefused(const std::vector<double>& costs, int parts, const char* message) {
  const Error error = ErrorOf([&] { BalancedPartition(costs, parts); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr(message));
}

TEST(BalancedPartition, RefusesWithTheNumbers) {
  ExpectRefused({1, 2}, 3, "3 parts of 2 blocks");
  ExpectRefused({1, 2}, 0, "0 parts of 2 blocks");
  ExpectRefused({}, 1, "1 parts of 0 blocks");
  ExpectRefused({1, -2}, 1, "block 1 of 2 is -2");
  ExpectRefused({std::numeric_limits<double>::quiet_NaN()}, 1, "block 0 of 1 is nan");
}

}  // namespace
}  // namespace lockstep
