// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/schedules/decay.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/nn/optim/option_checks.h"

namespace lockstep::optim {
namespace {

void RequireGamma(const char* call, double gamma) {
  RequireOption(gamma > 0 && !std::isinf(gamma), call, "gamma", gamma, "it is finite and above 0");
}

}  // namespace

ScheduleFunction StepLr(int64_t step_size, double gamma) {
  RequireOption(step_size >= 1, "StepLr", "step_size", step_size, "it is at least 1");
  RequireGamma("StepLr", gamma);
  return [step_size, gamma](int64_t step) {
    return std::pow(gamma, static_cast<double>(step / step_size));
  };
}

ScheduleFunction MultiStepLr(std::vector<int64_t> milestones, double gamma) {
  bool rising = milestones.empty() || milestones[0] >= 0;
  for (size_t i = 1; i < milestones.size(); ++i) rising &= milestones[i] > milestones[i - 1];
  RequireOption(rising, "MultiStepLr", "milestones",
                absl::StrCat("[", absl::StrJoin(milestones, ", "), "]"),
                "they are not negative and rise");
  RequireGamma("MultiStepLr", gamma);
  return [milestones = std::move(milestones), gamma](int64_t step) {
    const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step);
    return std::pow(gamma, static_cast<double>(passed - milestones.begin()));
  };
}

ScheduleFunction ExponentialLr(double gamma) {
  RequireGamma("ExponentialLr", gamma);
  return [gamma](int64_t step) { return std::pow(gamma, static_cast<double>(step)); };
}

}  // namespace lockstep::optim
