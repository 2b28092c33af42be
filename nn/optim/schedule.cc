// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/schedule.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

void CheckValue(absl::string_view what, double value, int64_t step, size_t group) {
  if (!(value >= 0) || std::isinf(value)) {
    throw InvalidArgumentError(absl::StrCat("Schedule: the ", what, " of group ", group,
                                            " at step ", step, " is ", value,
                                            "; a schedule gives finite numbers, not negative"));
  }
}

}  // namespace

ScheduleFunction::Value ScheduleFunction::FromFactor(std::function<double(int64_t)> factor) {
  if (factor == nullptr) return nullptr;
  return [factor = std::move(factor)](int64_t step, size_t, double base) {
    return base * factor(step);
  };
}

Schedule::Schedule(Optimizer* optimizer, ScheduleFunction function)
    : optimizer_(optimizer), function_(std::move(function)) {
  if (optimizer_ == nullptr || function_.empty()) {
    throw InvalidArgumentError(absl::StrCat(
        "Schedule: the ", optimizer_ == nullptr ? "optimizer" : "function", " is null"));
  }
  if (function_.group_count() != 0 && function_.group_count() != optimizer_->GroupCount()) {
    throw InvalidArgumentError(absl::StrCat(
        "Schedule: the function is for ", function_.group_count(), " groups and the optimizer has ",
        optimizer_->GroupCount(), "; give one value for each group, or one for all"));
  }
  if (function_.changes_momentum() && !optimizer_->BaseMomentum().has_value()) {
    throw InvalidArgumentError(
        "Schedule: the function changes the momentum, and the optimizer has none; leave it out "
        "(OneCycleLr: cycle_momentum = false)");
  }
  MoveTo(0);
}

void Schedule::MoveTo(int64_t step) {
  for (size_t group = 0; group < optimizer_->GroupCount(); ++group) {
    CheckValue("learning rate",
               function_.LearningRate(step, group, optimizer_->BaseLearningRate(group)), step,
               group);
    if (!function_.changes_momentum()) continue;
    CheckValue("momentum", function_.Momentum(step, group, *optimizer_->BaseMomentum(group)), step,
               group);
  }
  // Copies, so that the rules outlive the schedule.
  optimizer_->SetLearningRateRule([function = function_, step](size_t group, double base) {
    return function.LearningRate(step, group, base);
  });
  if (function_.changes_momentum()) {
    optimizer_->SetMomentumRule([function = function_, step](size_t group, double base) {
      return function.Momentum(step, group, base);
    });
  } else {
    optimizer_->SetMomentumRule(nullptr);
  }
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
