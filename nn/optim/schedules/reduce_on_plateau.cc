// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/schedules/reduce_on_plateau.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/optim/option_checks.h"
#include "lockstep/tensor/ops/creation.h"

namespace lockstep::optim {
namespace {

constexpr const char* kCall = "ReduceLrOnPlateau";

void Validate(const Optimizer* optimizer, const ReduceLrOnPlateauOptions& options) {
  if (optimizer == nullptr) throw InvalidArgumentError("ReduceLrOnPlateau: the optimizer is null");
  RequireBeta(kCall, "factor", options.factor);
  RequireOption(options.patience >= 0, kCall, "patience", options.patience, "it is not negative");
  RequireNotNegative(kCall, "threshold", options.threshold);
  RequireOption(options.cooldown >= 0, kCall, "cooldown", options.cooldown, "it is not negative");
  RequireNotNegative(kCall, "epsilon", options.epsilon);
  for (const double rate : options.min_lr) RequireNotNegative(kCall, "min_lr", rate);
  RequireOption(
      options.min_lr.size() <= 1 || options.min_lr.size() == optimizer->GroupCount(), kCall,
      "the number of min_lr", options.min_lr.size(),
      absl::StrCat("give one for all groups or one for each of the ", optimizer->GroupCount()));
}

}  // namespace

ReduceLrOnPlateau::ReduceLrOnPlateau(Optimizer* optimizer, const ReduceLrOnPlateauOptions& options)
    : optimizer_(optimizer),
      options_(options),
      best_(options.mode == PlateauMode::kMin ? std::numeric_limits<double>::infinity()
                                              : -std::numeric_limits<double>::infinity()) {
  Validate(optimizer, options);
  Apply();
}

bool ReduceLrOnPlateau::IsBetter(double metric) const {
  const bool relative = options_.threshold_mode == ThresholdMode::kRelative;
  if (options_.mode == PlateauMode::kMin) {
    return metric < (relative ? best_ * (1 - options_.threshold) : best_ - options_.threshold);
  }
  return metric > (relative ? best_ * (1 + options_.threshold) : best_ + options_.threshold);
}

void ReduceLrOnPlateau::Step(double metric) {
  ++step_;
  if (IsBetter(metric)) {
    best_ = metric;
    bad_steps_ = 0;
  } else {
    ++bad_steps_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_steps_ = 0;
  }
  if (bad_steps_ > options_.patience) {
    ++reductions_;
    cooldown_ = options_.cooldown;
    bad_steps_ = 0;
    Apply();
  }
}

void ReduceLrOnPlateau::Apply() {
  optimizer_->SetMomentumRule(nullptr);
  optimizer_->SetLearningRateRule(
      [options = options_, reductions = reductions_](size_t group, double rate) {
        const double floor = options.min_lr.empty()       ? 0
                             : options.min_lr.size() == 1 ? options.min_lr[0]
                                                          : options.min_lr.at(group);
        for (int64_t i = 0; i < reductions; ++i) {
          const double lower = std::max(rate * options.factor, floor);
          // Nor would any later reduction be larger.
          if (!(rate - lower > options.epsilon)) break;
          rate = lower;
        }
        return rate;
      });
}

OptimizerState ReduceLrOnPlateau::SaveState() const {
  OptimizerState state;
  state.numbers = {{"step", step_},
                   {"bad_steps", bad_steps_},
                   {"cooldown", cooldown_},
                   {"reductions", reductions_}};
  state.tensors.Insert("best", Full({}, best_, {DType::kFloat64}));
  return state;
}

void ReduceLrOnPlateau::LoadState(const OptimizerState& state) {
  const std::map<std::string, int64_t> own = SaveState().numbers;
  std::map<std::string, int64_t> loaded;
  std::vector<std::string> wrong;
  for (const auto& [name, number] : own) {
    const auto it = state.numbers.find(name);
    if (it == state.numbers.end()) {
      wrong.push_back(absl::StrCat(name, " is missing"));
    } else if (it->second < 0) {
      wrong.push_back(absl::StrCat(name, " is ", it->second));
    } else {
      loaded[name] = it->second;
    }
  }
  for (const auto& [name, number] : state.numbers) {
    if (!own.contains(name)) wrong.push_back(name + " is unknown here");
  }
  const Tensor* best = state.tensors.Find("best");
  if (best == nullptr || best->numel() != 1 || best->dtype() != DType::kFloat64) {
    wrong.push_back("best is missing, or not one float64");
  }
  for (const auto& [name, tensor] : state.tensors) {
    if (name != "best") wrong.push_back(name + " is unknown here");
  }
  if (!wrong.empty()) {
    throw InvalidArgumentError(
        absl::StrCat(kCall, "::LoadState: the state does not fit; nothing was loaded\n  ",
                     absl::StrJoin(wrong, "\n  ")));
  }
  best_ = best->Item<double>();
  step_ = loaded["step"];
  bad_steps_ = loaded["bad_steps"];
  cooldown_ = loaded["cooldown"];
  reductions_ = loaded["reductions"];
  Apply();
}

}  // namespace lockstep::optim
