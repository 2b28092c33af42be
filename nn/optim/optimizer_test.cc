// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/optim/adagrad.h"
#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/rmsprop.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::optim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Leaf(const std::vector<double>& values, DType dtype = DType::kFloat64) {
  const Tensor t = FromVector<double>(values, {static_cast<int64_t>(values.size())},
                                      {.dtype = dtype, .device = {}});
  return autograd::SetRequiresGrad(t, true);
}

void SetGradient(const Tensor& parameter, const std::vector<double>& values) {
  autograd::SetGrad(parameter,
                    FromVector<double>(values, parameter.shape(),
                                       {.dtype = parameter.dtype(), .device = parameter.device()}));
}

// The formulas of the papers, one number at a time.
struct ReferenceAdamW {
  double m = 0, v = 0;
  int t = 0;
  double Step(double p, double g, const AdamWOptions& o) {
    ++t;
    p -= o.lr * o.weight_decay * p;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, t));
    const double v_hat = v / (1 - std::pow(o.beta2, t));
    return p - o.lr * m_hat / (std::sqrt(v_hat) + o.epsilon);
  }
};

TEST(OptimizerStateTest, NamesHaveTheParameterAndTheKind) {
  const auto parts = [](const char* name) {
    const StateName split = SplitStateName(name);
    return std::pair(split.parameter, split.kind);
  };
  using Parts = std::pair<std::string, std::string>;
  EXPECT_EQ(parts("h.0.weight.exp_avg"), Parts("h.0.weight", "exp_avg"));
  EXPECT_EQ(parts("w.step"), Parts("w", "step"));
  EXPECT_EQ(parts("w"), Parts("w", ""));
}

TEST(AdamW, FollowsTheFormulas) {
  const AdamWOptions options{
      .lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.2};
  const Tensor w = Leaf({1, -2, 3});
  AdamW optimizer({{"w", w}}, options);
  std::vector<ReferenceAdamW> reference(3);
  std::vector<double> expected = {1, -2, 3};
  for (int step = 0; step < 5; ++step) {
    const std::vector<double> g = {0.5 * step, -1.5, 0.01 * (step - 2)};
    SetGradient(w, g);
    optimizer.Step();
    const std::vector<double> actual = w.ToVector<double>();
    for (size_t i = 0; i < 3; ++i) {
      expected[i] = reference[i].Step(expected[i], g[i], options);
      EXPECT_NEAR(actual[i], expected[i], 1e-12) << step << " " << i;
    }
  }
}

TEST(Sgd, FollowsTheFormulas) {
  for (const SgdOptions& o :
       {SgdOptions{.lr = 0.1},
        SgdOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.25, .weight_decay = 0.3},
        SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.3, .nesterov = true}}) {
    const Tensor w = Leaf({1, -2, 3});
    Sgd optimizer({{"w", w}}, o);
    std::vector<double> p = {1, -2, 3}, buffer(3);
    for (int step = 0; step < 4; ++step) {
      SetGradient(w, {0.5 * step, -1.5, 0.25});
      optimizer.Step();
      for (size_t i = 0; i < 3; ++i) {
        const double g = (i == 0 ? 0.5 * step : i == 1 ? -1.5 : 0.25) + o.weight_decay * p[i];
        buffer[i] = step == 0 ? g : o.momentum * buffer[i] + (1 - o.dampening) * g;
        const double direction = o.momentum == 0 ? g
                                 : o.nesterov    ? g + o.momentum * buffer[i]
                                                 : buffer[i];
        p[i] -= o.lr * direction;
        EXPECT_NEAR(w.ToVector<double>()[i], p[i], 1e-12) << step << " " << i;
      }
    }
  }
}

TEST(Optimizer, SkipsParametersWithoutGradient) {
  const Tensor a = Leaf({1, 2}), b = Leaf({3});
  AdamW optimizer({{"a", a}, {"b", b}}, {.lr = 0.1, .weight_decay = 0.5});
  SetGradient(a, {1, 1});
  optimizer.Step();
  EXPECT_EQ(b.Item<double>(), 3);  // Not even decayed.
  EXPECT_FALSE(optimizer.SaveState().numbers.contains("b.step"));
  // b begins later: its first step is its own first, a's the second.
  SetGradient(b, {1});
  optimizer.Step();
  EXPECT_EQ(optimizer.SaveState().numbers.at("a.step"), 2);
  EXPECT_EQ(optimizer.SaveState().numbers.at("b.step"), 1);
  ReferenceAdamW reference;
  EXPECT_NEAR(b.Item<double>(), reference.Step(3, 1, optimizer.options()), 1e-12);
}

TEST(Optimizer, StepsOnlyThoseAskedFor) {
  const Tensor a = Leaf({1}), b = Leaf({1}), stranger = Leaf({1});
  Sgd optimizer(NamedTensors{{"a", a}, {"b", b}}, {.lr = 0.5, .momentum = 0.5});
  SetGradient(a, {1});
  SetGradient(b, {1});
  SetGradient(stranger, {1});
  optimizer.StepOnly({b, stranger});
  EXPECT_THAT(a.ToVector<double>(), ElementsAre(1));
  EXPECT_THAT(b.ToVector<double>(), ElementsAre(0.5));
  EXPECT_THAT(stranger.ToVector<double>(), ElementsAre(1));
  EXPECT_EQ(optimizer.SaveState().numbers.count("a.step"), 0u);
  optimizer.StepOnly({});
  optimizer.options().lr = -1;
  EXPECT_THROW(optimizer.StepOnly({a}), Error);
  optimizer.options().lr = 0.5;
  optimizer.Step();  // of all again
  EXPECT_THAT(a.ToVector<double>(), ElementsAre(0.5));
  EXPECT_THAT(b.ToVector<double>(), ElementsAre(-0.25));
}

TEST(Optimizer, GroupsHaveOptionsThatMayChange) {
  const Tensor a = Leaf({1}), b = Leaf({1});
  Sgd optimizer({{NamedTensors{{"a", a}}, {.lr = 0.5}}, {NamedTensors{{"b", b}}, {.lr = 0.25}}});
  EXPECT_EQ(optimizer.GroupCount(), 2u);
  SetGradient(a, {1});
  SetGradient(b, {1});
  optimizer.Step();
  EXPECT_EQ(a.Item<double>(), 0.5);
  EXPECT_EQ(b.Item<double>(), 0.75);
  optimizer.options(1).lr = 0.75;
  optimizer.SetLearningRateFactor(0.5);
  EXPECT_EQ(optimizer.LearningRate(0), 0.25);
  EXPECT_EQ(optimizer.LearningRate(1), 0.375);
  optimizer.Step();
  EXPECT_EQ(a.Item<double>(), 0.25);
  EXPECT_EQ(b.Item<double>(), 0.375);
  EXPECT_THROW(optimizer.options(2), Error);
  EXPECT_THROW(optimizer.SetLearningRateFactor(-1), Error);
  EXPECT_THROW(optimizer.SetLearningRateFactor(NAN), Error);
  optimizer.options(0).lr = -1;
  EXPECT_THAT(MessageOf([&] { optimizer.Step(); }), HasSubstr("Sgd: lr is -1"));
  EXPECT_EQ(b.Item<double>(), 0.375);
}

TEST(Optimizer, MixesDevicesAndDTypes) {
  const Tensor a = Leaf({1}), b = Leaf({1}, DType::kFloat32);
  b.SetData(To(b, Cpu(1)));
  Sgd optimizer({{"a", a}, {"b", b}}, {.lr = 0.5, .momentum = 0.5});
  SetGradient(a, {1});
  SetGradient(b, {1});
  optimizer.Step();
  EXPECT_EQ(a.Item<double>(), 0.5);
  EXPECT_EQ(b.Item<double>(), 0.5);
  EXPECT_EQ(optimizer.SaveState().tensors.At("b.momentum_buffer").device(), Cpu(1));
}

TEST(Optimizer, SixteenBitParametersHaveFloat32State) {
  const Tensor w = Leaf({1, 2, 3}, DType::kBFloat16);
  AdamW optimizer({{"w", w}}, {.lr = 0.5, .weight_decay = 0});
  SetGradient(w, {1, -1, 1});
  optimizer.Step();
  EXPECT_EQ(w.dtype(), DType::kBFloat16);
  EXPECT_THAT(w.ToVector<double>(), ElementsAre(0.5, 2.5, 2.5));
  const OptimizerState state = optimizer.SaveState();
  EXPECT_EQ(state.tensors.At("w.exp_avg").dtype(), DType::kFloat32);
  EXPECT_EQ(state.tensors.At("w.exp_avg_sq").storage()->category(), MemoryCategory::kOptimizer);
}

TEST(Optimizer, RefusesBadParametersAndOptions) {
  const Tensor w = Leaf({1});
  EXPECT_THAT(MessageOf([&] { AdamW optimizer{NamedTensors()}; }), HasSubstr("no parameters"));
  EXPECT_THAT(MessageOf([&] {
                AdamW optimizer({{"w", FromVector<int64_t>({1}, {1})}});
              }),
              HasSubstr("int64"));
  EXPECT_THAT(MessageOf([&] {
                AdamW optimizer({{"y", w * Scalar(2)}});
              }),
              HasSubstr("result of an op"));
  EXPECT_THAT(MessageOf([&] {
                Sgd optimizer({{"a", w}, {"b", w}});
              }),
              HasSubstr("\"b\" is the same tensor as \"a\""));
  EXPECT_THAT(MessageOf([&] {
                Sgd optimizer({{NamedTensors{{"a", w}}, {}}, {NamedTensors{{"a", Leaf({2})}}, {}}});
              }),
              HasSubstr("\"a\" is given twice"));
  EXPECT_THAT(MessageOf([] { Rmsprop optimizer(std::vector<ParameterGroup<RmspropOptions>>{}); }),
              HasSubstr("Rmsprop: there are no parameters"));
}

template <typename Optim, typename Options>
std::string ErrorOfOptions(const Options& options) {
  return MessageOf([&] { Optim optimizer({{"w", Leaf({1})}}, options); });
}

TEST(Optimizer, NamesOptionsOutOfRange) {
  const auto adamw = [](const AdamWOptions& o) { return ErrorOfOptions<AdamW>(o); };
  EXPECT_EQ(adamw({.beta1 = 1}), "AdamW: beta1 is 1; it is within [0, 1)");
  EXPECT_EQ(adamw({.lr = NAN}), "AdamW: lr is nan; it is finite and not negative");
  const auto adam = [](const AdamOptions& o) { return ErrorOfOptions<Adam>(o); };
  EXPECT_EQ(adam({.beta2 = -0.1}), "Adam: beta2 is -0.1; it is within [0, 1)");
  EXPECT_THAT(adam({.epsilon = -1}), HasSubstr("epsilon is -1"));
  EXPECT_THAT(adam({.weight_decay = -1}), HasSubstr("weight_decay is -1"));
  const auto sgd = [](const SgdOptions& o) { return ErrorOfOptions<Sgd>(o); };
  EXPECT_THAT(sgd({.lr = -1}), HasSubstr("lr is -1"));
  EXPECT_THAT(sgd({.momentum = -1}), HasSubstr("momentum is -1"));
  EXPECT_THAT(sgd({.dampening = INFINITY}), HasSubstr("dampening is inf"));
  EXPECT_THAT(sgd({.weight_decay = -1}), HasSubstr("weight_decay is -1"));
  EXPECT_THAT(sgd({.nesterov = true}), HasSubstr("it needs momentum above 0 and dampening 0"));
  EXPECT_THAT(sgd({.momentum = 0.9, .dampening = 0.5, .nesterov = true}),
              HasSubstr("nesterov with momentum 0.9 and dampening 0.5"));
  const auto rmsprop = [](const RmspropOptions& o) { return ErrorOfOptions<Rmsprop>(o); };
  EXPECT_THAT(rmsprop({.lr = -1}), HasSubstr("lr is -1"));
  EXPECT_EQ(rmsprop({.alpha = 1.5}), "Rmsprop: alpha is 1.5; it is within [0, 1]");
  EXPECT_THAT(rmsprop({.epsilon = -1}), HasSubstr("epsilon is -1"));
  EXPECT_THAT(rmsprop({.weight_decay = NAN}), HasSubstr("weight_decay is nan"));
  EXPECT_THAT(rmsprop({.momentum = -1}), HasSubstr("momentum is -1"));
  const auto adagrad = [](const AdagradOptions& o) { return ErrorOfOptions<Adagrad>(o); };
  EXPECT_THAT(adagrad({.lr = -1}), HasSubstr("lr is -1"));
  EXPECT_THAT(adagrad({.lr_decay = -1}), HasSubstr("lr_decay is -1"));
  EXPECT_THAT(adagrad({.weight_decay = -1}), HasSubstr("weight_decay is -1"));
  EXPECT_THAT(adagrad({.initial_accumulator_value = -1}),
              HasSubstr("initial_accumulator_value is -1"));
  EXPECT_THAT(adagrad({.epsilon = -1}), HasSubstr("epsilon is -1"));
}

// The options of PyTorch's constructors, by their defaults.
TEST(Optimizer, DefaultsArePyTorchs) {
  EXPECT_EQ(SgdOptions().lr, 1e-3);
  EXPECT_EQ(AdamOptions().weight_decay, 0);
  EXPECT_EQ(AdamWOptions().weight_decay, 1e-2);
  EXPECT_EQ(RmspropOptions().lr, 1e-2);
  EXPECT_EQ(RmspropOptions().alpha, 0.99);
  EXPECT_EQ(AdagradOptions().lr, 1e-2);
  EXPECT_EQ(AdagradOptions().epsilon, 1e-10);
}

TEST(Optimizer, RulesStandInForRatesAndMomenta) {
  const Tensor a = Leaf({1}), b = Leaf({1});
  Sgd sgd({{NamedTensors{{"a", a}}, {.lr = 0.5}},
           {NamedTensors{{"b", b}}, {.lr = 0.25, .momentum = 0.5}}});
  sgd.SetLearningRateRule([](size_t group, double lr) { return group == 0 ? 1 : 2 * lr; });
  EXPECT_EQ(sgd.LearningRate(0), 1);
  EXPECT_EQ(sgd.LearningRate(1), 0.5);
  EXPECT_EQ(sgd.BaseLearningRate(1), 0.25);
  sgd.SetMomentumRule([](size_t, double momentum) { return momentum / 2; });
  EXPECT_EQ(*sgd.Momentum(1), 0.25);
  EXPECT_EQ(*sgd.BaseMomentum(1), 0.5);
  for (int step = 0; step < 2; ++step) {
    SetGradient(b, {1});
    sgd.Step();
  }
  EXPECT_EQ(b.Item<double>(), 1 - 0.5 - 0.5 * 1.25);
  sgd.SetLearningRateRule(nullptr);
  EXPECT_EQ(sgd.LearningRate(0), 0.5);
  // What a rule gives is checked as an option is, before anything changes.
  sgd.SetMomentumRule([](size_t, double) { return -1.0; });
  EXPECT_THAT(MessageOf([&] { sgd.Step(); }), HasSubstr("Sgd: momentum is -1"));
  EXPECT_THROW(sgd.LearningRate(2), Error);
  EXPECT_THROW(sgd.Momentum(2), Error);

  AdamW adamw({{"a", a}}, {.beta1 = 0.8});
  EXPECT_EQ(*adamw.Momentum(), 0.8);
  Adagrad adagrad({{"a", a}});
  EXPECT_FALSE(adagrad.Momentum().has_value());
  EXPECT_THAT(MessageOf([&] { adagrad.SetMomentumRule([](size_t, double m) { return m; }); }),
              HasSubstr("Adagrad::SetMomentumRule: this optimizer has no momentum"));
}

TEST(Optimizer, MaximizeClimbs) {
  const auto check = [](auto make) {
    const Tensor up = Leaf({1, -2}), down = Leaf({1, -2});
    auto climbing = make(up, true), descending = make(down, false);
    for (int step = 0; step < 3; ++step) {
      SetGradient(up, {-0.5, 1.0 + step});
      SetGradient(down, {0.5, -1.0 - step});
      climbing->Step();
      descending->Step();
    }
    EXPECT_EQ(up.ToVector<double>(), down.ToVector<double>());
  };
  check([](const Tensor& w, bool maximize) {
    return std::make_unique<Adam>(NamedTensors{{"w", w}},
                                  AdamOptions{.weight_decay = 0.1, .maximize = maximize});
  });
  check([](const Tensor& w, bool maximize) {
    return std::make_unique<Rmsprop>(NamedTensors{{"w", w}},
                                     RmspropOptions{.centered = true, .maximize = maximize});
  });
  check([](const Tensor& w, bool maximize) {
    return std::make_unique<Adagrad>(NamedTensors{{"w", w}}, AdagradOptions{.maximize = maximize});
  });
}

TEST(Optimizer, StateIsMadeWhenAnOptionAsksForIt) {
  const Tensor w = Leaf({1, 2});
  Adam adam({{"w", w}});
  SetGradient(w, {1, 1});
  adam.Step();
  EXPECT_FALSE(adam.SaveState().tensors.Contains("w.max_exp_avg_sq"));
  adam.options().amsgrad = true;
  adam.Step();
  EXPECT_TRUE(adam.SaveState().tensors.Contains("w.max_exp_avg_sq"));

  Rmsprop rmsprop({{"w", w}});
  rmsprop.Step();
  EXPECT_THAT(rmsprop.SaveState().tensors.Names(), ElementsAre("w.square_avg"));
  rmsprop.options().momentum = 0.5;
  rmsprop.options().centered = true;
  rmsprop.Step();
  EXPECT_THAT(rmsprop.SaveState().tensors.Names(),
              ElementsAre("w.square_avg", "w.momentum_buffer", "w.grad_avg"));

  Adagrad adagrad({{"w", w}}, {.initial_accumulator_value = 0.5});
  adagrad.Step();
  EXPECT_THAT(adagrad.SaveState().tensors.At("w.sum").ToVector<double>(), ElementsAre(1.5, 1.5));
}

TEST(Optimizer, ZeroGrad) {
  const Tensor w = Leaf({1});
  Sgd optimizer({{"w", w}});
  SetGradient(w, {5});
  optimizer.ZeroGrad(/*set_to_none=*/false);
  EXPECT_EQ(autograd::Grad(w).Item<double>(), 0);
  optimizer.ZeroGrad();
  EXPECT_FALSE(autograd::Grad(w).defined());
  optimizer.Step();  // Nothing to do.
  EXPECT_EQ(w.Item<double>(), 1);
}

// Steps with gradients that depend on the step.
void Train(Optimizer& optimizer, int from, int to) {
  for (int step = from; step < to; ++step) {
    double k = 1;
    for (const auto& [name, parameter] : optimizer.parameters()) {
      SetGradient(parameter, std::vector<double>(static_cast<size_t>(parameter.numel()),
                                                 k * std::sin(step + name.size())));
      k += 0.5;
    }
    optimizer.Step();
  }
}

OptimizerState Copied(const OptimizerState& state) {
  OptimizerState copy;
  for (const auto& [name, tensor] : state.tensors) copy.tensors.Insert(name, Clone(tensor));
  copy.numbers = state.numbers;
  return copy;
}

template <typename Optim, typename Options>
void CheckResume(const Options& options) {
  const Tensor a = Leaf({1, 2, 3}), b = Leaf({4});
  Optim whole({{"a", a}, {"bb", b}}, options);
  Train(whole, 0, 3);
  const Tensor a2 = Leaf(a.ToVector<double>()), b2 = Leaf(b.ToVector<double>());
  // Other order and other groups: state goes by name. Gradients depend on the order, so the groups
  // list them as before.
  Optim resumed({{NamedTensors{{"a", a2}}, options}, {NamedTensors{{"bb", b2}}, options}});
  resumed.LoadState(Copied(whole.SaveState()));
  Train(whole, 3, 6);
  Train(resumed, 3, 6);
  EXPECT_EQ(a.ToVector<double>(), a2.ToVector<double>());
  EXPECT_EQ(b.ToVector<double>(), b2.ToVector<double>());
}

TEST(OptimizerState, ResumesExactly) {
  CheckResume<AdamW>(AdamWOptions{.lr = 0.1});
  CheckResume<Sgd>(SgdOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
  CheckResume<Sgd>(SgdOptions{.lr = 0.1});
  CheckResume<AdamW>(AdamWOptions{.lr = 0.1, .amsgrad = true});
  CheckResume<Adam>(AdamOptions{.lr = 0.1, .weight_decay = 0.1});
  CheckResume<Adam>(AdamOptions{.lr = 0.1, .amsgrad = true});
  CheckResume<Rmsprop>(RmspropOptions{.lr = 0.1});
  CheckResume<Rmsprop>(RmspropOptions{.lr = 0.1, .momentum = 0.9, .centered = true});
  CheckResume<Adagrad>(
      AdagradOptions{.lr = 0.1, .lr_decay = 0.5, .initial_accumulator_value = 0.25});
}

TEST(OptimizerState, AsksForTheStateOfItsOptionsOnly) {
  const Tensor w = Leaf({1});
  Rmsprop with({{"w", w}}, {.momentum = 0.9, .centered = true}), without({{"w", w}});
  Train(with, 0, 2);
  Train(without, 0, 2);
  // What is not used is kept.
  OptimizerState full = Copied(with.SaveState()), part = Copied(without.SaveState());
  without.LoadState(full);
  EXPECT_TRUE(without.SaveState().tensors.Contains("w.grad_avg"));
  const std::string message = MessageOf([&] { with.LoadState(part); });
  EXPECT_THAT(message, HasSubstr("w.momentum_buffer is missing"));
  EXPECT_THAT(message, HasSubstr("w.grad_avg is missing"));
  Adam amsgrad({{"w", w}}, {.amsgrad = true}), adam({{"w", w}});
  Train(adam, 0, 1);
  EXPECT_THAT(MessageOf([&] { amsgrad.LoadState(adam.SaveState()); }),
              HasSubstr("w.max_exp_avg_sq is missing"));
  EXPECT_THAT(MessageOf([&] { adam.LoadState(full); }), HasSubstr("w.square_avg is unknown here"));
}

TEST(OptimizerState, LoadCopies) {
  const Tensor w = Leaf({1});
  AdamW first({{"w", w}});
  Train(first, 0, 1);
  AdamW second({{"w", w}});
  second.LoadState(first.SaveState());
  EXPECT_NE(second.SaveState().tensors.At("w.exp_avg").storage(),
            first.SaveState().tensors.At("w.exp_avg").storage());
}

TEST(OptimizerState, ListsWhatDoesNotFitAndChangesNothing) {
  const Tensor a = Leaf({1, 2}), b = Leaf({3});
  AdamW optimizer({{"a", a}, {"b", b}});
  Train(optimizer, 0, 2);
  OptimizerState state = Copied(optimizer.SaveState());
  state.tensors.Set("a.exp_avg", Zeros({3}));
  state.tensors.Insert("c.exp_avg", Zeros({1}));
  state.tensors.Insert("b.momentum_buffer", Zeros({1}));
  state.numbers["d.step"] = 1;
  state.numbers.erase("b.step");
  const std::string message = MessageOf([&] { optimizer.LoadState(state); });
  EXPECT_THAT(message, HasSubstr("a.exp_avg has shape [3] and the parameter [2]"));
  EXPECT_THAT(message, HasSubstr("c.exp_avg is unknown"));
  EXPECT_THAT(message, HasSubstr("b.momentum_buffer is unknown"));
  EXPECT_THAT(message, HasSubstr("d.step is unknown"));
  EXPECT_THAT(message, HasSubstr("b.step is missing"));
  EXPECT_EQ(optimizer.SaveState().numbers.at("b.step"), 2);
}

TEST(OptimizerState, EmptyStateStartsAnew) {
  const Tensor a = Leaf({1, 2});
  AdamW optimizer({{"a", a}});
  Train(optimizer, 0, 2);
  optimizer.LoadState({});
  EXPECT_TRUE(optimizer.SaveState().numbers.empty());
  EXPECT_TRUE(optimizer.SaveState().tensors.empty());
}

}  // namespace
}  // namespace lockstep::optim
