// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"

namespace lockstep::optim {

ScheduleFunction WarmupCosine(const WarmupCosineOptions& options) {
  if (options.warmup_steps < 0 || options.total_steps < 1 ||
      options.warmup_steps > options.total_steps ||
      !(options.final_fraction >= 0 && options.final_fraction <= 1)) {
    throw InvalidArgumentError(absl::StrCat(
        "WarmupCosine: warmup_steps ", options.warmup_steps, ", total_steps ", options.total_steps,
        ", final_fraction ", options.final_fraction,
        "; steps are not negative, the warm-up is part of a total of at least 1, and the fraction "
        "is within [0, 1]"));
  }
  return [options](int64_t step) {
    const auto warmup = static_cast<double>(options.warmup_steps);
    if (step < options.warmup_steps) return static_cast<double>(step + 1) / warmup;
    if (step >= options.total_steps) return options.final_fraction;
    constexpr double kPi = 3.14159265358979323846;
    const double progress =
        (static_cast<double>(step) - warmup) / (static_cast<double>(options.total_steps) - warmup);
    return options.final_fraction +
           (1 - options.final_fraction) * 0.5 * (1 + std::cos(kPi * progress));
  };
}

ScheduleFunction MultiStep(std::vector<int64_t> milestones, double gamma) {
  bool rising = milestones.empty() || milestones[0] >= 0;
  for (size_t i = 1; i < milestones.size(); ++i) rising &= milestones[i] > milestones[i - 1];
  if (!rising || !(gamma > 0) || std::isinf(gamma)) {
    throw InvalidArgumentError(absl::StrCat("MultiStep: milestones [",
                                            absl::StrJoin(milestones, ", "), "], gamma ", gamma,
                                            "; milestones are not negative and rise, and gamma is "
                                            "above 0"));
  }
  return [milestones = std::move(milestones), gamma](int64_t step) {
    const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step);
    return std::pow(gamma, static_cast<double>(passed - milestones.begin()));
  };
}

Schedule::Schedule(Optimizer* optimizer, ScheduleFunction function)
    : optimizer_(optimizer), function_(std::move(function)) {
  if (optimizer_ == nullptr || function_ == nullptr) {
    throw InvalidArgumentError(absl::StrCat(
        "Schedule: the ", optimizer_ == nullptr ? "optimizer" : "function", " is null"));
  }
  MoveTo(0);
}

void Schedule::MoveTo(int64_t step) {
  const double factor = function_(step);
  optimizer_->SetLearningRateFactor(factor);
  step_ = step;
}

void Schedule::Step() { MoveTo(step_ + 1); }

OptimizerState Schedule::SaveState() const {
  OptimizerState state;
  state.numbers["step"] = step_;
  return state;
}

void Schedule::LoadState(const OptimizerState& state) {
  const auto it = state.numbers.find("step");
  if (it == state.numbers.end() || it->second < 0 || state.numbers.size() != 1 ||
      !state.tensors.empty()) {
    throw InvalidArgumentError(absl::StrCat(
        "Schedule::LoadState: ", state.tensors.size(), " tensors and ", state.numbers.size(),
        " numbers", it == state.numbers.end() ? "" : absl::StrCat(", step ", it->second),
        "; the state of a schedule is one \"step\" that is not negative"));
  }
  MoveTo(it->second);
}

}  // namespace lockstep::optim
