// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Schedules give the learning rates and momenta of PyTorch's, for two groups of different rates
// (make_optimizer_goldens.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/autograd/requires_grad.h"
#include "lockstep/nn/optim/adagrad.h"
#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/rmsprop.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/nn/optim/schedules/combine.h"
#include "lockstep/nn/optim/schedules/cosine.h"
#include "lockstep/nn/optim/schedules/decay.h"
#include "lockstep/nn/optim/schedules/factor.h"
#include "lockstep/nn/optim/schedules/one_cycle.h"
#include "lockstep/nn/optim/schedules/reduce_on_plateau.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tests/parity/goldens.h"

namespace lockstep::parity {
namespace {

using nlohmann::json;

constexpr const char* kGoldens = "tests/parity/optimizers/schedule_goldens.json";

template <typename Optim, typename Options>
std::unique_ptr<optim::Optimizer> WithGroups(const json& lrs) {
  std::vector<optim::ParameterGroup<Options>> groups;
  for (size_t i = 0; i < lrs.size(); ++i) {
    Options options;
    options.lr = lrs[i];
    const Tensor leaf = autograd::SetRequiresGrad(Zeros({1}), true);
    groups.push_back({NamedTensors{{"p" + std::to_string(i), leaf}}, options});
  }
  return std::make_unique<Optim>(groups);
}

std::unique_ptr<optim::Optimizer> MakeOptimizer(const std::string& kind, const json& lrs) {
  if (kind == "Sgd") return WithGroups<optim::Sgd, optim::SgdOptions>(lrs);
  if (kind == "Adam") return WithGroups<optim::Adam, optim::AdamOptions>(lrs);
  if (kind == "Rmsprop") return WithGroups<optim::Rmsprop, optim::RmspropOptions>(lrs);
  EXPECT_EQ(kind, "Adagrad");
  return WithGroups<optim::Adagrad, optim::AdagradOptions>(lrs);
}

std::map<std::string, optim::ScheduleFunction> OneCycles(int64_t steps) {
  using optim::AnnealStrategy;
  const std::vector<double> peaks = {1, 0.3};
  const auto plain = optim::OneCycleLr({.total_steps = steps, .max_lr = peaks});
  return {{"one_cycle", plain},
          {"one_cycle_adam", plain},
          {"one_cycle_linear", optim::OneCycleLr({.total_steps = steps,
                                                  .max_lr = peaks,
                                                  .pct_start = 0.4,
                                                  .anneal_strategy = AnnealStrategy::kLinear,
                                                  .base_momentum = 0.7,
                                                  .max_momentum = 0.9,
                                                  .div_factor = 10,
                                                  .final_div_factor = 100})},
          {"one_cycle_three",
           optim::OneCycleLr({.total_steps = steps, .max_lr = peaks, .three_phase = true})},
          {"one_cycle_three_linear", optim::OneCycleLr({.total_steps = steps,
                                                        .max_lr = peaks,
                                                        .anneal_strategy = AnnealStrategy::kLinear,
                                                        .cycle_momentum = false,
                                                        .three_phase = true})}};
}

// The schedules of make_optimizer_goldens.py.
std::map<std::string, optim::ScheduleFunction> Schedules(int64_t steps) {
  std::map<std::string, optim::ScheduleFunction> all = OneCycles(steps);
  const auto power = [](int64_t t) { return std::pow(0.95, static_cast<double>(t)); };
  const auto inverse = [](int64_t t) { return 1 / (1 + static_cast<double>(t)); };
  all.insert(
      {{"step", optim::StepLr(7, 0.6)},
       {"multi_step", optim::MultiStepLr({5, 6, 30}, 0.3)},
       {"exponential", optim::ExponentialLr(0.93)},
       {"constant", optim::ConstantLr({.factor = 0.25, .total_iters = 9})},
       {"linear", optim::LinearLr()},
       {"linear_down",
        optim::LinearLr({.start_factor = 0.9, .end_factor = 0.05, .total_iters = 31})},
       {"lambda", optim::LambdaLr({power, inverse})},
       {"cosine", optim::CosineAnnealingLr({.t_max = 20})},
       {"cosine_floor", optim::CosineAnnealingLr({.t_max = 60, .eta_min = 0.01})},
       {"restarts", optim::CosineAnnealingWarmRestarts({.t_0 = 10, .eta_min = 0.001})},
       {"restarts_longer", optim::CosineAnnealingWarmRestarts({.t_0 = 5, .t_mult = 2})},
       {"sequential",
        optim::SequentialLr({optim::LinearLr({.start_factor = 0.1, .total_iters = 10}),
                             optim::CosineAnnealingLr({.t_max = 30}), optim::ExponentialLr(0.9)},
                            {10, 40})},
       {"chained",
        optim::ChainedLr({optim::LinearLr({.start_factor = 0.2, .total_iters = 8}),
                          optim::ExponentialLr(0.97), optim::MultiStepLr({20, 33}, 0.5)})}});
  return all;
}

// 1e-12 of the value, or of the group's largest where a cosine comes down to its floor: there
// PyTorch's recursive form has lost the digits itself.
void ExpectSame(double actual, const json& sequence, size_t step) {
  double largest = 0;
  for (const double value : sequence) largest = std::max(largest, value);
  const double expected = sequence[step];
  EXPECT_NEAR(actual, expected, 1e-12 * std::max(expected, 1e-3 * largest)) << "step " << step;
}

TEST(SchedulesParity, RatesAndMomentaOfEverySchedule) {
  const json goldens = ReadGoldens(kGoldens);
  const std::map<std::string, optim::ScheduleFunction> all = Schedules(goldens["steps"]);
  ASSERT_EQ(goldens["schedules"].size(), all.size());
  for (const auto& [name, function] : all) {
    SCOPED_TRACE(name);
    const json& golden = goldens["schedules"].at(name);
    const auto optimizer = MakeOptimizer(golden["optimizer"], goldens["lrs"]);
    optim::Schedule schedule(optimizer.get(), function);
    EXPECT_EQ(function.changes_momentum(), golden.contains("momenta"));
    for (size_t step = 0; step < goldens["steps"].get<size_t>(); ++step) {
      for (size_t group = 0; group < 2; ++group) {
        ExpectSame(optimizer->LearningRate(group), golden["rates"][group], step);
        if (golden.contains("momenta")) {
          ExpectSame(*optimizer->Momentum(group), golden["momenta"][group], step);
        }
      }
      schedule.Step();
    }
  }
}

optim::ReduceLrOnPlateauOptions PlateauOf(const json& golden) {
  optim::ReduceLrOnPlateauOptions o;
  o.factor = golden.value("factor", o.factor);
  o.patience = golden.value("patience", o.patience);
  o.threshold = golden.value("threshold", o.threshold);
  o.cooldown = golden.value("cooldown", o.cooldown);
  o.min_lr = golden.value("min_lr", o.min_lr);
  o.epsilon = golden.value("epsilon", o.epsilon);
  if (golden.value("mode", "min") == "max") o.mode = optim::PlateauMode::kMax;
  if (golden.value("threshold_mode", "rel") == "abs") {
    o.threshold_mode = optim::ThresholdMode::kAbsolute;
  }
  return o;
}

TEST(SchedulesParity, Plateaus) {
  const json goldens = ReadGoldens(kGoldens);
  ASSERT_EQ(goldens["plateaus"].size(), 8u);
  for (const auto& [name, golden] : goldens["plateaus"].items()) {
    SCOPED_TRACE(name);
    const auto optimizer = MakeOptimizer("Sgd", goldens["lrs"]);
    const optim::ReduceLrOnPlateauOptions options = PlateauOf(golden["options"]);
    optim::ReduceLrOnPlateau schedule(optimizer.get(), options);
    for (size_t step = 0; step < goldens["losses"].size(); ++step) {
      const json& loss = goldens["losses"][step];
      const double value =
          loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>();
      schedule.Step(options.mode == optim::PlateauMode::kMax ? 6 - value : value);
      for (size_t group = 0; group < 2; ++group) {
        ExpectSame(optimizer->LearningRate(group), golden["rates"][group], step);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::parity
