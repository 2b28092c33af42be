// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/setting.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/checkpoint/budget.h"
#include "lockstep/checkpoint/measure_units.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::checkpoint {
namespace {

using autograd::SavedBytes;
using ::testing::HasSubstr;
using Kind = CheckpointSetting::Kind;

constexpr int64_t kRows = 16, kWidth = 32;
constexpr int64_t kUnit = kRows * kWidth * 4;

// Saves x, Gelu's input, Gelu's result, Tanh's result; counts its calls in a buffer.
class Block : public nn::UnaryModule {
 public:
  Block()
      : a_(RegisterModule("a", std::make_shared<nn::Linear>(kWidth, kWidth))),
        b_(RegisterModule("b", std::make_shared<nn::Linear>(kWidth, kWidth))) {
    RegisterBuffer("calls", &calls, Zeros({1}));
  }
  Tensor Forward(const Tensor& x) override {
    {
      autograd::NoGradScope no_grad;
      AddInPlace(calls, Ones({1}));
    }
    return Tanh((*b_)(Dropout(Gelu((*a_)(x)), 0.1)));
  }
  Tensor calls;

 private:
  std::shared_ptr<nn::Linear> a_, b_;
};

class Net : public nn::UnaryModule {
 public:
  explicit Net(int count) : blocks(RegisterModule("h", std::make_shared<nn::ModuleList<Block>>())) {
    for (int i = 0; i < count; ++i) blocks->Emplace();
  }
  Tensor Forward(const Tensor& x) override {
    Tensor h = Mul(x, 0.5);
    for (const auto& block : *blocks) h = (*block)(h);
    return h;
  }
  Tensor Loss() { return Sum(Exp((*this)(Ones({kRows, kWidth})))); }
  std::shared_ptr<nn::ModuleList<Block>> blocks;
};

TEST(ParseCheckpointSettingTest, EveryForm) {
  EXPECT_EQ(ParseCheckpointSetting("none"), (CheckpointSetting{Kind::kNone, 0}));
  EXPECT_EQ(ParseCheckpointSetting("block"), (CheckpointSetting{Kind::kBlock, 0}));
  EXPECT_EQ(ParseCheckpointSetting("selective"), (CheckpointSetting{Kind::kSelective, 0}));
  const std::pair<const char*, int64_t> sizes[] = {
      {"1B", 1},      {"7KB", 7000},         {"3MB", 3000000},          {"2GB", 2000000000},
      {"1KiB", 1024}, {"512MiB", 512 << 20}, {"3GiB", int64_t{3} << 30}};
  for (const auto& [text, bytes] : sizes) {
    const auto setting = ParseCheckpointSetting(absl::StrCat("budget:", text));
    EXPECT_EQ(setting, (CheckpointSetting{Kind::kBudget, bytes})) << text;
    EXPECT_EQ(ParseCheckpointSetting(setting.ToString()), setting);
  }
  for (const char* name : {"none", "block", "selective"}) {
    EXPECT_EQ(ParseCheckpointSetting(name).ToString(), name);
  }
}

TEST(ParseCheckpointSettingTest, Refusals) {
  for (const char* text :
       {"", "Block", "blocks", "budget", "budget:", "budget:512", "budget:MiB", "budget:-1MiB",
        "budget:0MiB", "budget:1.5GiB", "budget: 1MiB", "budget:1MiB ", "budget:1TiB",
        "budget:9223372036854775807KiB", "budget:99999999999999999999B", "budget:+5B"}) {
    const Error error = ErrorOf([&] { ParseCheckpointSetting(text); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr(absl::StrCat("\"", text, "\"")));
    EXPECT_THAT(error.message(), HasSubstr("budget:512MiB"));
  }
}

TEST(MeasureUnitsTest, MeasuresBytesAndLeavesEverythingAsItWas) {
  ManualSeed(3);
  Net net(3);
  const auto units = UnitsOf(*net.blocks);
  const NamedTensors before = net.StateDict();
  std::vector<std::vector<float>> values;
  for (const auto& [name, tensor] : before) values.push_back(tensor.ToVector<float>());
  const RandomKey key = ThreadGenerators().dropout.key;
  const int64_t saved = SavedBytes();
  const UnitMeasurement measured = MeasureUnits(units, [&] { return net.Loss(); });
  ASSERT_EQ(measured.costs.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const UnitCost& cost = measured.costs[i];
    EXPECT_EQ(cost.name, std::to_string(i));
    EXPECT_EQ(cost.saved(UnitMode::kSaveAll), 4 * kUnit);
    EXPECT_EQ(cost.saved(UnitMode::kSelective), 3 * kUnit);
    EXPECT_EQ(cost.saved(UnitMode::kRecomputeAll), kUnit);
    EXPECT_EQ(cost.extra(UnitMode::kSaveAll), 0);
    EXPECT_GE(cost.extra(UnitMode::kRecomputeAll), 0);
  }
  EXPECT_EQ(measured.rest_bytes, kUnit);  // Exp's result
  EXPECT_EQ(ThreadGenerators().dropout.key, key);
  EXPECT_EQ(SavedBytes(), saved);
  size_t i = 0;
  for (const auto& [name, tensor] : net.StateDict()) {
    EXPECT_EQ(tensor.ToVector<float>(), values[i++]) << name;
  }
  for (const Tensor& parameter : net.Parameters()) {
    EXPECT_FALSE(autograd::Grad(parameter).defined());
  }
  for (const auto& unit : units) EXPECT_FALSE(unit->has_forward_wrapper());
}

TEST(MeasureUnitsTest, Refusals) {
  Net net(2);
  const auto units = UnitsOf(*net.blocks);
  const auto trial = [&] { return net.Loss(); };
  EXPECT_THAT(MessageOf([&] { MeasureUnits({nullptr}, trial); }), HasSubstr("unit 0 is null"));
  EXPECT_THAT(MessageOf([&] { MeasureUnits(units, nullptr); }), HasSubstr("an empty trial"));
  EXPECT_THAT(MessageOf([&] { MeasureUnits(units, trial, {.repeats = 0}); }),
              HasSubstr("repeats 0"));
  EXPECT_THAT(MessageOf([&] { MeasureUnits(units, [] { return Tensor(); }); }),
              HasSubstr("did not call unit 0"));
  {
    autograd::NoGradScope no_grad;
    EXPECT_EQ(ErrorOf([&] { MeasureUnits(units, trial); }).code(),
              absl::StatusCode::kFailedPrecondition);
  }
  units[0]->SetRequiresGrad(false);
  EXPECT_THAT(MessageOf([&] { MeasureUnits(units, trial); }),
              HasSubstr("unit 0 (Module) requires no gradient"));
  for (const auto& unit : units) EXPECT_FALSE(unit->has_forward_wrapper());
  CheckpointModule(units[1]);
  EXPECT_EQ(ErrorOf([&] { MeasureUnits(units, trial); }).code(), absl::StatusCode::kAlreadyExists);
  BudgetPlan plan;
  plan.modes = {UnitMode::kSelective, UnitMode::kSelective};
  EXPECT_EQ(ErrorOf([&] { ApplyPlan(units, plan); }).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(units[0]->has_forward_wrapper());
  RemoveCheckpointing(net);
  plan.modes.pop_back();
  EXPECT_THAT(MessageOf([&] { ApplyPlan(units, plan); }), HasSubstr("1 units and 2"));
}

// Lets go of a graph that is not its own, as another thread may.
class Dropping : public nn::UnaryModule {
 public:
  Dropping() { RegisterParameter("w", &w, Full({4}, 2.0)); }
  Tensor Forward(const Tensor& x) override {
    other = Tensor();
    return Mul(x, w);
  }
  Tensor w, other;
};

TEST(MeasureUnitsTest, AGraphOfOthersDroppedMeanwhileDoesNotCount) {
  const auto unit = std::make_shared<Dropping>();
  const Tensor big = autograd::SetRequiresGrad(Ones({1000}), true);
  unit->other = Exp(big);
  const UnitMeasurement m = MeasureUnits({unit}, [&] { return Sum((*unit)(Ones({4}))); });
  EXPECT_EQ(m.costs[0].saved(UnitMode::kSaveAll), 4 * 4);  // the input
}

TEST(MeasureUnitsTest, AUnitListedTwiceIsRefusedAndNothingChanges) {
  Net net(2);
  const auto units = UnitsOf(*net.blocks);
  const UnitList twice = {units[0], units[1], units[0]};
  EXPECT_THAT(MessageOf([&] { MeasureUnits(twice, [&] { return net.Loss(); }); }),
              HasSubstr("MeasureUnits: units 0 and 2 are the same module"));
  for (const UnitMode mode : {UnitMode::kSaveAll, UnitMode::kSelective, UnitMode::kRecomputeAll}) {
    BudgetPlan plan;
    plan.modes.assign(3, mode);
    const Error error = ErrorOf([&] { ApplyPlan(twice, plan); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("ApplyPlan: units 0 and 2 are the same module"));
  }
  for (const auto& unit : units) EXPECT_FALSE(unit->has_forward_wrapper());
}

std::vector<std::vector<float>> Step(Net& net) {
  ManualSeed(8);
  net.ZeroGrad();
  const Tensor loss = net.Loss();
  autograd::Backward(loss);
  std::vector<std::vector<float>> result = {loss.ToVector<float>()};
  for (const Tensor& p : net.Parameters()) result.push_back(autograd::Grad(p).ToVector<float>());
  return result;
}

TEST(ApplyCheckpointSettingTest, EverySettingGivesTheSameNumbersWithinItsBytes) {
  ManualSeed(3);
  Net net(6);
  const auto expected = Step(net);
  const auto blocks = UnitsOf(*net.blocks);
  const auto trial = [&] { return net.Loss(); };
  const int64_t before = SavedBytes();
  const auto end_bytes = [&] {
    const Tensor loss = net.Loss();
    return SavedBytes() - before;
  };
  struct Case {
    std::string setting;
    int64_t limit;
    std::string text;
  };
  const Case cases[] = {
      {"none", 20 * kUnit, "no checkpointing"},
      {"block", 7 * kUnit, "each of 6 blocks"},
      {"selective", 19 * kUnit, "contractions saved"},
      {absl::StrCat("budget:", 25 * kUnit, "B"), 25 * kUnit, "0 .. 5: save all"},
      {absl::StrCat("budget:", 16 * kUnit, "B"), 16 * kUnit, "checkpointing within"},
      {absl::StrCat("budget:", 11 * kUnit, "B"), 11 * kUnit, "recompute all"}};
  for (const Case& c : cases) {
    const std::string done =
        ApplyCheckpointSetting(ParseCheckpointSetting(c.setting), blocks, trial);
    EXPECT_THAT(done, HasSubstr(c.text));
    EXPECT_LE(end_bytes(), c.limit) << c.setting;
    autograd::ResetPeakSavedBytes(Cpu(0));
    const auto got = Step(net);
    if (c.setting.starts_with("budget")) {
      EXPECT_LE(autograd::PeakSavedBytes(Cpu(0)) - before, c.limit) << done;
    }
    EXPECT_EQ(got, expected) << c.setting;
    RemoveCheckpointing(net);
  }
  const Error error = ErrorOf(
      [&] { ApplyCheckpointSetting(ParseCheckpointSetting("budget:1KiB"), blocks, trial); });
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error.message(), HasSubstr("the smallest limit is"));
  for (const auto& block : blocks) EXPECT_FALSE(block->has_forward_wrapper());
}

}  // namespace
}  // namespace lockstep::checkpoint
