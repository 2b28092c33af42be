// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/budget.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr UnitMode kAll = UnitMode::kSaveAll, kSome = UnitMode::kSelective,
                   kNone = UnitMode::kRecomputeAll;

std::vector<UnitCost> EqualUnits(int count) {
  std::vector<UnitCost> units;
  for (int i = 0; i < count; ++i) {
    units.push_back({absl::StrCat("h.", i), {16, 10, 1}, {0, 0.5, 3}});
  }
  return units;
}

TEST(PlanBudgetTest, AWideLimitSavesEverything) {
  const BudgetPlan plan = PlanBudget(EqualUnits(3), 50, 2);
  EXPECT_THAT(plan.modes, ElementsAre(kAll, kAll, kAll));
  EXPECT_EQ(plan.end_bytes, 50);
  EXPECT_EQ(plan.peak_bytes, 50);
  EXPECT_EQ(plan.extra_seconds, 0);
}

TEST(PlanBudgetTest, TightensStepByStep) {
  const auto modes = [](int64_t limit) { return PlanBudget(EqualUnits(3), limit).modes; };
  EXPECT_THAT(modes(47), ::testing::UnorderedElementsAre(kAll, kAll, kSome));
  EXPECT_THAT(modes(41), ::testing::UnorderedElementsAre(kAll, kSome, kSome));
  // The last unit is recomputed while the others hold theirs: 10 + 10 + 16.
  EXPECT_THAT(modes(36), ElementsAre(kSome, kSome, kAll));
  EXPECT_THAT(modes(35), ElementsAre(kNone, kAll, kAll));
  EXPECT_THAT(modes(18), ElementsAre(kNone, kNone, kAll));
}

TEST(PlanBudgetTest, TheSmallestLimitIsNamed) {
  EXPECT_EQ(SmallestBudget(EqualUnits(3), 5), 5 + 1 + 1 + 16);
  EXPECT_EQ(SmallestBudget({}, 5), 5);
  PlanBudget(EqualUnits(3), 23, 5);
  const Error error = ErrorOf([] { PlanBudget(EqualUnits(3), 22, 5); });
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error.message(), HasSubstr("the smallest limit is 23 bytes"));
}

// Every choice, looked at one by one.
double BestByBruteForce(const std::vector<UnitCost>& units, int64_t limit, int64_t rest) {
  double best = std::numeric_limits<double>::infinity();
  int64_t choices = 1;
  for (size_t i = 0; i < units.size(); ++i) choices *= kUnitModeCount;
  for (int64_t choice = 0; choice < choices; ++choice) {
    int64_t bytes = rest, peak = rest, digits = choice;
    double seconds = 0;
    for (const UnitCost& unit : units) {
      const auto mode = static_cast<UnitMode>(digits % kUnitModeCount);
      digits /= kUnitModeCount;
      peak = std::max(peak, bytes + unit.saved(kAll));
      bytes += unit.saved(mode);
      seconds += unit.extra(mode);
    }
    if (std::max(peak, bytes) <= limit) best = std::min(best, seconds);
  }
  return best;
}

TEST(PlanBudgetTest, IsTheBestOfAllChoices) {
  std::vector<UnitCost> units;
  uint32_t state = 7;
  const auto next = [&](uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int64_t>((state >> 8) % below);
  };
  for (int i = 0; i < 7; ++i) {
    const int64_t all = 20 + next(80), some = 5 + next(15), none = next(5);
    const double half = static_cast<double>(next(100)) * 0.25;
    units.push_back({absl::StrCat(i), {all, some, none}, {0, half, half + 0.5 * next(50)}});
  }
  for (int64_t limit = SmallestBudget(units, 3); limit < 700; limit += 5) {
    const BudgetPlan plan = PlanBudget(units, limit, 3);
    EXPECT_DOUBLE_EQ(plan.extra_seconds, BestByBruteForce(units, limit, 3)) << limit;
    EXPECT_LE(plan.peak_bytes, limit);
    EXPECT_LE(plan.end_bytes, plan.peak_bytes);
  }
}

// More choices than are looked at: within the limit, and close to what equal units would need.
TEST(PlanBudgetTest, ManyUnequalUnits) {
  std::vector<UnitCost> units;
  int64_t total = 0;
  for (int i = 0; i < 100; ++i) {
    const int64_t all = 1000000 + i * 7919 % 10007;
    units.push_back({absl::StrCat(i), {all, all / 2 + i * 31, all / 16}, {0, 1 + i * 1e-4, 5}});
    total += all;
  }
  const BudgetPlan plan = PlanBudget(units, total * 3 / 4);
  EXPECT_LE(plan.peak_bytes, total * 3 / 4);
  EXPECT_LT(plan.extra_seconds, 53);  // half of the units selective
  EXPECT_NO_THROW(PlanBudget(units, SmallestBudget(units)));
}

TEST(PlanBudgetTest, NothingAndOneUnit) {
  EXPECT_TRUE(PlanBudget({}, 1).modes.empty());
  EXPECT_THAT(PlanBudget(EqualUnits(1), 16).modes, ElementsAre(kAll));
  // Recomputing the only unit does not lower the peak.
  EXPECT_EQ(ErrorOf([] { PlanBudget(EqualUnits(1), 15); }).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(PlanBudgetTest, SaysWhatItChose) {
  const std::string text = PlanBudget(EqualUnits(5), 50 + 16).ToString();
  EXPECT_THAT(text, HasSubstr("checkpointing within 0.0 MiB"));
  EXPECT_THAT(text, HasSubstr("ms more a step"));
  BudgetPlan plan;
  plan.names = {"a", "b", "c", "d", "e", "f"};
  plan.modes = {kNone, kNone, kNone, kSome, kSome, kAll};
  plan.limit_bytes = 64 << 20;
  plan.end_bytes = 3 << 19;
  plan.peak_bytes = 2 << 20;
  plan.extra_seconds = 0.0125;
  EXPECT_EQ(
      plan.ToString(),
      "checkpointing within 64.0 MiB: 1.5 MiB at the end of forward, 2.0 MiB at most, 12.5 ms "
      "more a step\n  a .. c: recompute all\n  d, e: selective\n  f: save all");
}

TEST(PlanBudgetTest, BadArguments) {
  EXPECT_THAT(MessageOf([] { PlanBudget(EqualUnits(1), 0); }), HasSubstr("a limit of 0 bytes"));
  EXPECT_THAT(MessageOf([] { PlanBudget(EqualUnits(1), 5, -1); }), HasSubstr("-1 outside"));
  const auto refuse = [](UnitCost unit) {
    unit.name = "h.9";
    const Error error = ErrorOf([&] { PlanBudget({unit}, 100); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("unit h.9"));
  };
  refuse({"", {10, 11, 1}, {0, 1, 1}});
  refuse({"", {10, 5, -1}, {0, 1, 1}});
  refuse({"", {10, 5, 1}, {0, -1, 1}});
  refuse({"", {10, 5, 1}, {0, 1, std::numeric_limits<double>::infinity()}});
}

}  // namespace
}  // namespace lockstep::checkpoint
