// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/strategy_state.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

using Names = std::vector<std::string>;

Tensor Number(double value) { return FromVector<double>({value}, {1}); }

TEST(StrategyStateTest, PartsComeBackByTheirPrefix) {
  StrategyState all;
  EXPECT_TRUE(all.empty());
  const StrategyState hook = {{{"step", Number(3)}}, {{"error.w", Number(4)}}};
  all.InsertAll(hook, "hook.");
  all.InsertAll({{{"steps", Number(5)}}, {}}, "local.");
  EXPECT_EQ(all.shared.Names(), (Names{"hook.step", "local.steps"}));
  EXPECT_EQ(all.own.Names(), Names{"hook.error.w"});
  const StrategyState part = all.Part("hook.");
  EXPECT_EQ(part.shared.At("step").Item<double>(), 3);
  EXPECT_EQ(part.own.At("error.w").Item<double>(), 4);
  EXPECT_TRUE(all.Part("none.").empty());
  EXPECT_FALSE(all.Part("local.").empty());
  EXPECT_NE(MessageOf([&] { all.InsertAll(hook, "hook."); }).find("hook.step"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::strategies
