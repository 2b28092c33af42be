// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/execution_order.h"

#include <cstddef>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::strategies {
namespace {

using Units = std::vector<size_t>;
constexpr size_t kNothing = 99;

// A root (0) that calls `inner` one after the other. What OnForward said to gather ahead.
Units Forward(ExecutionOrder& order, const Units& inner, bool records = true) {
  Units ahead;
  order.BeginForward(records);
  ahead.push_back(order.OnForward(0).value_or(kNothing));
  for (const size_t unit : inner) {
    ahead.push_back(order.OnForward(unit).value_or(kNothing));
    order.OnForwardDone(unit);
  }
  order.OnForwardDone(0);
  order.EndForward();
  return ahead;
}

// The units as backward comes to them, by what NextInBackward() says.
Units Backward(const ExecutionOrder& order) {
  Units units;
  for (std::optional<size_t> unit = 0; unit.has_value(); unit = order.NextInBackward(*unit)) {
    units.push_back(*unit);
  }
  return units;
}

TEST(ExecutionOrderTest, FollowsTheIterationBefore) {
  ExecutionOrder order;
  EXPECT_TRUE(order.recorded().empty());
  EXPECT_EQ(Forward(order, {1, 2, 3}), (Units{kNothing, kNothing, kNothing, kNothing}));
  EXPECT_EQ(order.recorded(), (Units{0, 1, 2, 3}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Forward(order, {1, 2, 3}), (Units{1, 2, 3, kNothing}));
  }
  EXPECT_EQ(Backward(order), (Units{0, 3, 2, 1}));
}

TEST(ExecutionOrderTest, SaysNothingOnceItDiffers) {
  ExecutionOrder order;
  Forward(order, {1, 2, 3});
  EXPECT_EQ(Forward(order, {1, 3, 2}), (Units{1, 2, kNothing, kNothing}));
  EXPECT_EQ(order.recorded(), (Units{0, 1, 3, 2}));
  EXPECT_EQ(Backward(order), (Units{0, 2, 3, 1}));
  // Shorter, longer.
  EXPECT_EQ(Forward(order, {1}), (Units{1, 3}));
  EXPECT_EQ(Forward(order, {1, 2}), (Units{1, kNothing, kNothing}));
}

TEST(ExecutionOrderTest, EvaluationFollowsAndRecordsNothing) {
  ExecutionOrder order;
  Forward(order, {1, 2, 3});
  EXPECT_EQ(Forward(order, {1, 2, 3}, /*records=*/false), (Units{1, 2, 3, kNothing}));
  EXPECT_EQ(Forward(order, {3, 1}, /*records=*/false), (Units{1, kNothing, kNothing}));
  EXPECT_EQ(order.recorded(), (Units{0, 1, 2, 3}));
  EXPECT_EQ(Backward(order), (Units{0, 3, 2, 1}));
}

// A pass that an exception left does not become the order.
TEST(ExecutionOrderTest, KeepsTheOrderOfWholePassesOnly) {
  ExecutionOrder order;
  Forward(order, {1, 2});
  order.BeginForward(true);
  order.OnForward(0);
  order.OnForward(2);
  EXPECT_EQ(order.recorded(), (Units{0, 1, 2}));
  EXPECT_EQ(Forward(order, {1, 2}), (Units{1, 2, kNothing}));
}

TEST(ExecutionOrderTest, UnitsThatAreUsedTwice) {
  ExecutionOrder order;
  Forward(order, {1, 2, 1});
  EXPECT_EQ(order.recorded(), (Units{0, 1, 2, 1}));
  EXPECT_EQ(Forward(order, {1, 2, 1}), (Units{1, 2, 1, kNothing}));
  // 1 is differentiated first: its later use.
  EXPECT_EQ(order.NextInBackward(0), 1u);
  EXPECT_EQ(order.NextInBackward(1), 2u);
  EXPECT_EQ(order.NextInBackward(2), 1u);
  Forward(order, {2, 1, 1});
  EXPECT_EQ(order.NextInBackward(1), 2u);
  EXPECT_EQ(order.NextInBackward(2), std::nullopt);
  EXPECT_EQ(order.NextInBackward(7), std::nullopt);
}

// Inner units are over before those around them.
TEST(ExecutionOrderTest, NestedUnits) {
  ExecutionOrder order;
  order.BeginForward(true);
  for (const size_t unit : {0, 1, 2}) order.OnForward(unit);  // 0 around 1 around 2
  for (const size_t unit : {2, 1}) order.OnForwardDone(unit);
  order.OnForward(3);
  for (const size_t unit : {3, 0}) order.OnForwardDone(unit);
  order.EndForward();
  EXPECT_EQ(order.recorded(), (Units{0, 1, 2, 3}));
  EXPECT_EQ(Backward(order), (Units{0, 3, 1, 2}));
}

}  // namespace
}  // namespace lockstep::strategies
