// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/amp/scaler/grad_scaler.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::amp {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor Parameter(const std::vector<float>& values, DType dtype = DType::kFloat32) {
  return autograd::SetRequiresGrad(
      To(FromVector<float>(values, {static_cast<int64_t>(values.size())}), dtype), true);
}

// One float32 parameter "w" and what trains it.
struct OneWeight {
  explicit OneWeight(double value = 1, double lr = 0.25)
      : w(Parameter({static_cast<float>(value)})), optimizer({{"w", w}}, {.lr = lr}) {}
  // A gradient as a scaled backward leaves it; `overflow` makes it infinite.
  void SetScaledGradient(const GradScaler& scaler, double gradient, bool overflow = false) {
    const double value = overflow ? kInf : gradient * scaler.scale();
    autograd::SetGrad(w, FromVector<float>({static_cast<float>(value)}, {1}));
  }
  Tensor w;
  optim::Sgd optimizer;
};

// One iteration with a true gradient of 1, or an overflow. Whether it stepped.
bool Iterate(GradScaler& scaler, OneWeight& model, bool overflow) {
  model.SetScaledGradient(scaler, 1, overflow);
  const bool stepped = scaler.Step(model.optimizer);
  scaler.Update();
  return stepped;
}

std::vector<std::pair<double, int64_t>> Trace(GradScaler& scaler, const std::string& outcomes) {
  OneWeight model;
  std::vector<std::pair<double, int64_t>> trace;
  for (char outcome : outcomes) {
    Iterate(scaler, model, outcome == 'x');
    trace.emplace_back(scaler.scale(), scaler.growth_tracker());
  }
  return trace;
}

TEST(GradScalerTest, DefaultsAreThoseOfPyTorch) {
  const GradScaler scaler;
  EXPECT_TRUE(scaler.enabled());
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_EQ(scaler.options().growth_factor, 2);
  EXPECT_EQ(scaler.options().backoff_factor, 0.5);
  EXPECT_EQ(scaler.options().growth_interval, 2000);
  EXPECT_EQ(scaler.options().hysteresis, 1);
  EXPECT_EQ(scaler.growth_tracker(), 0);
}

TEST(GradScalerTest, ScaleMultipliesAndBackwardSeesIt) {
  const GradScaler scaler({.init_scale = 1024});
  const Tensor w = Parameter({3, -2});
  autograd::Backward(scaler.Scale(Sum(w * w)));
  EXPECT_EQ(autograd::Grad(w).ToVector<double>(), (std::vector<double>{6144, -4096}));
  const std::vector<Tensor> outputs = {Full({2}, 0.5), Full({}, -3, {.dtype = DType::kFloat64})};
  const std::vector<Tensor> scaled = scaler.Scale(outputs);
  ASSERT_EQ(scaled.size(), 2u);
  EXPECT_EQ(scaled[0].ToVector<double>(), (std::vector<double>{512, 512}));
  EXPECT_EQ(scaled[1].dtype(), DType::kFloat64);
  EXPECT_EQ(scaled[1].Item<double>(), -3072);
}

TEST(GradScalerTest, ScaledLossesOf16BitsAreFloat32) {
  const GradScaler scaler;  // 65536 is no float16 number
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor scaled = scaler.Scale(Full({}, 3.5, {.dtype = dtype}));
    EXPECT_EQ(scaled.dtype(), DType::kFloat32);
    EXPECT_EQ(scaled.Item<double>(), 3.5 * 65536);
  }
}

// Field report: scale and tracker after each outcome, and the weight and step count after all.
TEST(GradScalerTest, GrowsBacksOffAndSkips) {
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  OneWeight sgd;
  const Tensor v = Parameter({1});
  optim::Adam adam({{"v", v}}, {.lr = 0.25});
  const std::vector<std::pair<double, int64_t>> expected = {{8, 1}, {16, 0}, {8, 0},
                                                            {8, 1}, {16, 0}, {16, 1}};
  const std::string outcomes = "..x...";
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const bool overflow = outcomes[i] == 'x';
    sgd.SetScaledGradient(scaler, 1, overflow);
    autograd::SetGrad(
        v, FromVector<float>({overflow ? kNan : static_cast<float>(scaler.scale())}, {1}));
    EXPECT_EQ(scaler.Step(sgd.optimizer), !overflow);
    EXPECT_EQ(scaler.Step(adam), !overflow);
    scaler.Update();
    EXPECT_EQ(scaler.scale(), expected[i].first) << i;
    EXPECT_EQ(scaler.growth_tracker(), expected[i].second) << i;
    EXPECT_EQ(scaler.consecutive_skips(), overflow ? 1 : 0);
  }
  EXPECT_EQ(sgd.w.Item<double>(), -0.25);
  EXPECT_EQ(adam.SaveState().numbers.at("v.step"), 5);
}

// Field report: the divisor is the scale of that backward, whatever Update() makes of it.
TEST(GradScalerTest, ClipsTrueGradientsAndUnscalesOnce) {
  GradScaler scaler({.init_scale = 1024});
  const Tensor w = Parameter({0, 0});
  optim::Sgd optimizer({{"w", w}}, {.lr = 1});
  autograd::SetGrad(w, FromVector<float>({3 * 1024, 4 * 1024}, {2}));
  scaler.UnscaleGradients(optimizer);
  EXPECT_EQ(autograd::Grad(w).ToVector<double>(), (std::vector<double>{3, 4}));
  EXPECT_FALSE(scaler.FoundInf(optimizer));
  optim::ClipGradNorm(optimizer.parameters().Tensors(), 1);
  const std::vector<double> clipped = autograd::Grad(w).ToVector<double>();
  EXPECT_NEAR(clipped[0], 0.6, 1e-6);
  EXPECT_NEAR(clipped[1], 0.8, 1e-6);
  const Error twice = ErrorOf([&] { scaler.UnscaleGradients(optimizer); });
  EXPECT_EQ(twice.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(twice.message(), HasSubstr("unscaled since the last Update()"));
  EXPECT_EQ(autograd::Grad(w).ToVector<double>(), clipped) << "unchanged by the error";
  EXPECT_TRUE(scaler.Step(optimizer));
  EXPECT_EQ(w.ToVector<double>(), (std::vector<double>{-clipped[0], -clipped[1]}));
}

TEST(GradScalerTest, UsesTheScaleOfTheBackwardOnGrowthSteps) {
  GradScaler scaler({.init_scale = 4, .growth_interval = 1});
  OneWeight model(/*value=*/0, /*lr=*/1);
  for (int step = 1; step <= 3; ++step) {
    EXPECT_TRUE(Iterate(scaler, model, false));
    EXPECT_EQ(model.w.Item<double>(), -step);
    EXPECT_EQ(scaler.scale(), 4 << step);
  }
}

TEST(GradScalerTest, OneOptimizersOverflowSkipsThatOneAndShrinksTheScale) {
  GradScaler scaler({.init_scale = 16, .growth_interval = 1});
  OneWeight good, bad;
  for (int step = 1; step <= 3; ++step) {
    good.SetScaledGradient(scaler, 1);
    bad.SetScaledGradient(scaler, 1, true);
    scaler.UnscaleGradients(bad.optimizer);
    EXPECT_TRUE(scaler.FoundInf(bad.optimizer));
    EXPECT_TRUE(scaler.Step(good.optimizer));
    EXPECT_FALSE(scaler.Step(bad.optimizer));
    scaler.Update();
    EXPECT_EQ(scaler.scale(), 16 / (1 << step));
  }
  EXPECT_EQ(good.w.Item<double>(), 1 - 3 * 0.25);
  EXPECT_EQ(bad.w.Item<double>(), 1);
}

TEST(GradScalerTest, OrderOfCallsIsChecked) {
  GradScaler scaler({.init_scale = 2});
  OneWeight model;
  EXPECT_THAT(MessageOf([&] { scaler.Update(); }), HasSubstr("no optimizer has been unscaled"));
  EXPECT_THAT(MessageOf([&] { scaler.FoundInf(model.optimizer); }),
              HasSubstr("call UnscaleGradients() first"));
  EXPECT_THAT(MessageOf([&] { scaler.Step(model.optimizer); }),
              HasSubstr("none of the optimizer's 1 parameters has a gradient;"));
  EXPECT_THAT(MessageOf([&] { scaler.Update(); }), HasSubstr("no optimizer")) << "nothing noted";
  model.SetScaledGradient(scaler, 1);
  EXPECT_TRUE(scaler.Step(model.optimizer));
  EXPECT_THAT(MessageOf([&] { scaler.Step(model.optimizer); }), HasSubstr("has stepped since"));
  EXPECT_THAT(MessageOf([&] { scaler.UnscaleGradients(model.optimizer); }),
              HasSubstr("unscale before Step()"));
  EXPECT_EQ(ErrorOf([&] { scaler.SaveState(); }).code(), absl::StatusCode::kFailedPrecondition);
  scaler.Update();
  EXPECT_EQ(ErrorOf([&] { scaler.Update(); }).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(model.w.Item<double>(), 0.75) << "one step was taken";
}

TEST(GradScalerTest, Float16GradientsAreRefused) {
  GradScaler scaler;
  const Tensor a = Parameter({1});
  const Tensor b = Parameter({1, 2}, DType::kFloat16);
  optim::Sgd optimizer({{"a", a}, {"head.b", b}}, {});
  autograd::SetGrad(a, Full({1}, 65536.0));
  autograd::SetGrad(b, Full({2}, 8, {.dtype = DType::kFloat16}));
  const Error error = ErrorOf([&] { scaler.Step(optimizer); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("\"head.b\" is float16[2] on cpu:0"));
  EXPECT_THAT(error.message(), HasSubstr("float32 (master weights)"));
  EXPECT_EQ(autograd::Grad(a).Item<double>(), 65536) << "nothing was unscaled";
}

TEST(GradScalerTest, BFloat16AndFloat64GradientsAreUnscaled) {
  GradScaler scaler({.init_scale = 256});
  const Tensor a = Parameter({1}, DType::kBFloat16);
  const Tensor b = Parameter({1}, DType::kFloat64);
  optim::Sgd optimizer({{"a", a}, {"b", b}}, {.lr = 1});
  autograd::SetGrad(a, Full({1}, 128.0, {.dtype = DType::kBFloat16}));
  autograd::SetGrad(b, Full({1}, 64.0, {.dtype = DType::kFloat64}));
  EXPECT_TRUE(scaler.Step(optimizer));
  EXPECT_EQ(a.Item<double>(), 0.5);
  EXPECT_EQ(b.Item<double>(), 0.75);
}

TEST(GradScalerTest, FlagsOfSeveralDevicesAreCombined) {
  GradScaler scaler({.init_scale = 4});
  const Tensor a = Parameter({1});
  const Tensor b = autograd::SetRequiresGrad(Full({1}, 1.0, {.device = Cpu(1)}), true);
  optim::Sgd optimizer({{"a", a}, {"b", b}}, {.lr = 1});
  for (int step = 0; step < 3; ++step) {
    const bool overflow = step == 1;  // on the second device only
    const double scale = scaler.scale();
    autograd::SetGrad(a, Full({1}, scale));
    autograd::SetGrad(b, Full({1}, overflow ? kInf : scale, {.device = Cpu(1)}));
    EXPECT_EQ(scaler.Step(optimizer), !overflow);
    scaler.Update();
  }
  EXPECT_EQ(scaler.scale(), 2);
  EXPECT_EQ(a.Item<double>(), -1);
  EXPECT_EQ(b.Item<double>(), -1);
}

TEST(GradScalerTest, DisabledDoesNothing) {
  GradScaler scaler({.enabled = false});
  OneWeight model;
  const Tensor loss = Full({}, 3, {.dtype = DType::kFloat16});
  EXPECT_TRUE(scaler.Scale(loss).IsSame(loss));
  EXPECT_EQ(scaler.scale(), 1);
  autograd::SetGrad(model.w, Full({1}, kInf));
  scaler.UnscaleGradients(model.optimizer);
  scaler.UnscaleGradients(model.optimizer);
  EXPECT_FALSE(scaler.FoundInf(model.optimizer));
  EXPECT_TRUE(scaler.Step(model.optimizer));
  EXPECT_EQ(model.w.Item<double>(), -kInf);
  scaler.Update();
  EXPECT_TRUE(scaler.SaveState().reals.empty());
  EXPECT_TRUE(scaler.SaveState().integers.empty());
}

// Megatron's rules, hysteresis 2: the first overflow is forgiven, every further one shrinks the
// scale until it has grown again.
TEST(GradScalerTest, HysteresisForgivesTheFirstOverflows) {
  GradScaler scaler({.init_scale = 16, .growth_interval = 3, .hysteresis = 2});
  const auto trace = Trace(scaler, "x.x..x...x.x");
  const std::vector<std::pair<double, int64_t>> expected = {
      {16, 0},                  // forgiven
      {16, 1}, {8, 0},          // spent: shrinks, though a good update lies between
      {8, 1},  {8, 2}, {4, 0},  // still spent
      {4, 1},  {4, 2}, {8, 0},  // grown: full again
      {8, 0},  {8, 1}, {4, 0}};
  EXPECT_EQ(trace, expected);
}

TEST(GradScalerTest, ConsecutiveHysteresisIsFullAfterAGoodUpdate) {
  GradScaler scaler(
      {.init_scale = 16, .growth_interval = 100, .hysteresis = 3, .consecutive_hysteresis = true});
  const auto trace = Trace(scaler, "xx.xxxx.x");
  const std::vector<std::pair<double, int64_t>> expected = {
      {16, 0}, {16, 0}, {16, 1}, {16, 0}, {16, 0}, {8, 0}, {4, 0}, {4, 1}, {4, 0}};
  EXPECT_EQ(trace, expected);
}

TEST(GradScalerTest, KeepsWithinItsBounds) {
  GradScaler scaler({.init_scale = 4, .growth_interval = 1, .min_scale = 3, .max_scale = 10});
  EXPECT_EQ(Trace(scaler, "x.x...x"),
            (std::vector<std::pair<double, int64_t>>{
                {3, 0}, {6, 0}, {3, 0}, {6, 0}, {10, 0}, {10, 0}, {5, 0}}));
}

TEST(GradScalerTest, GrowsWhileFinite) {
  GradScaler scaler({.init_scale = 0x1p126, .growth_interval = 1});
  EXPECT_EQ(Trace(scaler, "..."),
            (std::vector<std::pair<double, int64_t>>{{0x1p127, 0}, {0x1p127, 0}, {0x1p127, 0}}));
}

// Field report: 200 steps of a NaN loss.
TEST(GradScalerTest, SaysSoInsteadOfShrinkingForEver) {
  GradScaler scaler;
  OneWeight model;
  int errors = 0;
  for (int step = 1; step <= 200; ++step) {
    autograd::SetGrad(model.w, Full({1}, kNan));
    EXPECT_FALSE(scaler.Step(model.optimizer));
    try {
      scaler.Update();
      EXPECT_LT(step, 50);
    } catch (const Error& error) {
      EXPECT_GE(step, 50);
      EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
      if (++errors == 1) {
        EXPECT_THAT(error.message(),
                    HasSubstr("50 updates in a row had gradients that are not finite"));
        EXPECT_THAT(error.message(),
                    HasSubstr("the gradient of \"w\", float32[1] on cpu:0 has nan at [0]"));
      }
    }
    EXPECT_TRUE(std::isnormal(static_cast<float>(scaler.scale())));
    EXPECT_GE(scaler.scale(), 0x1p-24);
  }
  EXPECT_EQ(errors, 151);
  EXPECT_EQ(scaler.scale(), 0x1p-24);
  EXPECT_TRUE(Iterate(scaler, model, false)) << "usable again when gradients are finite";
  EXPECT_EQ(scaler.consecutive_skips(), 0);
}

TEST(GradScalerTest, ErrorForSkipsCanBeTurnedOff) {
  GradScaler scaler({.max_consecutive_skips = 0});
  OneWeight model;
  for (int step = 0; step < 60; ++step) Iterate(scaler, model, true);
  EXPECT_EQ(scaler.consecutive_skips(), 60);
  EXPECT_EQ(scaler.scale(), 0x1p-24);
}

TEST(GradScalerTest, UpdateSetsAScale) {
  GradScaler scaler({.growth_interval = 3});
  OneWeight model;
  Iterate(scaler, model, false);
  model.SetScaledGradient(scaler, 1);
  scaler.Step(model.optimizer);
  scaler.Update(128.0);
  EXPECT_EQ(scaler.scale(), 128);
  EXPECT_EQ(scaler.growth_tracker(), 1) << "as in PyTorch, the tracker stays";
  for (double bad : {0.0, -1.0, 1e-30, 1e39, static_cast<double>(kNan)}) {
    EXPECT_EQ(ErrorOf([&] { scaler.Update(bad); }).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(scaler.scale(), 128);
  EXPECT_TRUE(Iterate(scaler, model, false));
}

TEST(GradScalerTest, StateGoesOnAsIfNothingHappened) {
  const GradScalerOptions options{.init_scale = 64, .growth_interval = 3, .hysteresis = 2};
  GradScaler through(options), before(options);
  const auto whole = Trace(through, "..x.x...x");
  Trace(before, "..x.x");
  const GradScalerState state = before.SaveState();
  EXPECT_EQ(state.reals, (std::map<std::string, double>{
                             {"scale", 32}, {"growth_factor", 2}, {"backoff_factor", 0.5}}));
  EXPECT_EQ(state.integers, (std::map<std::string, int64_t>{{"growth_interval", 3},
                                                            {"growth_tracker", 0},
                                                            {"hysteresis", 2},
                                                            {"hysteresis_tracker", 0},
                                                            {"consecutive_skips", 1}}));
  GradScaler after({.growth_factor = 7});
  after.LoadState(state);
  EXPECT_EQ(Trace(after, "...x"),
            (std::vector<std::pair<double, int64_t>>(whole.begin() + 5, whole.end())));
}

TEST(GradScalerTest, StatesThatDoNotFitAreRefusedWhole) {
  GradScaler scaler;
  GradScalerState state = scaler.SaveState();
  state.reals["scale"] = 4;
  state.reals.erase("backoff_factor");
  state.integers["_growth_tracker"] = 1;
  EXPECT_EQ(MessageOf([&] { scaler.LoadState(state); }),
            "GradScaler::LoadState: missing: backoff_factor; unknown: _growth_tracker");
  EXPECT_EQ(scaler.scale(), 65536);
  const auto changed = [&](const char* name, double value) {
    GradScalerState other = scaler.SaveState();
    if (other.reals.count(name) > 0) {
      other.reals[name] = value;
    } else {
      other.integers[name] = static_cast<int64_t>(value);
    }
    return MessageOf([&] { scaler.LoadState(other); });
  };
  EXPECT_THAT(changed("scale", 0), HasSubstr("the scale 0 is not within min_scale"));
  EXPECT_THAT(changed("growth_factor", 1), HasSubstr("growth_factor is 1"));
  EXPECT_THAT(changed("backoff_factor", 1), HasSubstr("backoff_factor is 1"));
  EXPECT_THAT(changed("growth_interval", 0), HasSubstr("growth_interval is 0"));
  EXPECT_THAT(changed("hysteresis", 0), HasSubstr("hysteresis is 0"));
  EXPECT_THAT(changed("growth_tracker", -1), HasSubstr("growth_tracker is -1"));
  EXPECT_THAT(changed("consecutive_skips", -2), HasSubstr("consecutive_skips is -2"));
  EXPECT_THAT(MessageOf([&] { scaler.LoadState({}); }), HasSubstr("of a disabled scaler"));
  GradScaler off({.enabled = false});
  EXPECT_THAT(MessageOf([&] { off.LoadState(scaler.SaveState()); }),
              HasSubstr("this scaler is disabled"));
  off.LoadState(off.SaveState());
}

TEST(GradScalerTest, OptionsAreChecked) {
  const auto message = [](const GradScalerOptions& options) {
    const Error error = ErrorOf([&] { GradScaler scaler(options); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    return error.message();
  };
  EXPECT_THAT(message({.init_scale = 0}), HasSubstr("the scale 0 is not within"));
  EXPECT_THAT(message({.init_scale = kInf}), HasSubstr("the scale inf is not within"));
  EXPECT_THAT(message({.growth_factor = 1}), HasSubstr("growth_factor is 1"));
  EXPECT_THAT(message({.growth_factor = kNan}), HasSubstr("growth_factor is nan"));
  EXPECT_THAT(message({.backoff_factor = 0}), HasSubstr("backoff_factor is 0"));
  EXPECT_THAT(message({.growth_interval = 0}), HasSubstr("growth_interval is 0"));
  EXPECT_THAT(message({.hysteresis = 0}), HasSubstr("hysteresis is 0"));
  EXPECT_THAT(message({.min_scale = 1e-40}), HasSubstr("min_scale is 1e-40"));
  EXPECT_THAT(message({.min_scale = 8, .max_scale = 4}), HasSubstr("max_scale is 4"));
  EXPECT_THAT(message({.max_scale = kInf}), HasSubstr("max_scale is inf"));
  EXPECT_THAT(message({.max_consecutive_skips = -1}), HasSubstr("max_consecutive_skips is -1"));
  const GradScaler scaler;
  EXPECT_THAT(MessageOf([&] { scaler.Scale(Tensor()); }), HasSubstr("the output is undefined"));
  EXPECT_THAT(MessageOf([&] { scaler.Scale(Full({}, 1, {.dtype = DType::kInt64})); }),
              HasSubstr("the output is int64[]"));
}

}  // namespace
}  // namespace lockstep::amp
