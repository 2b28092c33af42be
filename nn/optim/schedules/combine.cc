// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/schedules/combine.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/optim/option_checks.h"

namespace lockstep::optim {
namespace {

// The number of groups that all of them are for; 0 for any.
size_t CommonGroupCount(const char* call, const std::vector<ScheduleFunction>& schedules) {
  RequireOption(!schedules.empty(), call, "the number of schedules", schedules.size(),
                "give at least one");
  size_t count = 0;
  for (size_t i = 0; i < schedules.size(); ++i) {
    if (schedules[i].empty()) {
      throw InvalidArgumentError(absl::StrCat(call, ": schedule ", i, " is null"));
    }
    const size_t own = schedules[i].group_count();
    if (own != 0 && count != 0 && own != count) {
      throw InvalidArgumentError(absl::StrCat(call, ": schedule ", i, " is for ", own,
                                              " groups and one before it for ", count,
                                              "; they must be for the same optimizer"));
    }
    count = std::max(count, own);
  }
  return count;
}

bool AnyChangesMomentum(const std::vector<ScheduleFunction>& schedules) {
  return std::any_of(schedules.begin(), schedules.end(),
                     [](const ScheduleFunction& schedule) { return schedule.changes_momentum(); });
}

}  // namespace

ScheduleFunction SequentialLr(std::vector<ScheduleFunction> schedules,
                              std::vector<int64_t> milestones) {
  const size_t groups = CommonGroupCount("SequentialLr", schedules);
  bool rising = milestones.size() + 1 == schedules.size();
  for (size_t i = 0; i < milestones.size(); ++i) {
    rising &= milestones[i] > (i == 0 ? 0 : milestones[i - 1]);
  }
  RequireOption(
      rising, "SequentialLr", "milestones",
      absl::StrCat("[", absl::StrJoin(milestones, ", "), "] for ", schedules.size(), " schedules"),
      "they are one fewer than the schedules, above 0, and rise");
  struct Parts {
    std::vector<ScheduleFunction> schedules;
    std::vector<int64_t> milestones;
    // The schedule of a step, which becomes that schedule's own step.
    const ScheduleFunction& At(int64_t& step) const {
      const auto next = std::upper_bound(milestones.begin(), milestones.end(), step);
      if (next != milestones.begin()) step -= *(next - 1);
      return schedules[static_cast<size_t>(next - milestones.begin())];
    }
  };
  const bool momentum = AnyChangesMomentum(schedules);
  const auto parts = std::make_shared<const Parts>(Parts{std::move(schedules), milestones});
  ScheduleFunction::Value momentum_value;
  if (momentum) {
    momentum_value = [parts](int64_t step, size_t group, double base) {
      const ScheduleFunction& schedule = parts->At(step);
      return schedule.Momentum(step, group, base);
    };
  }
  return ScheduleFunction(
      [parts](int64_t step, size_t group, double base) {
        const ScheduleFunction& schedule = parts->At(step);
        return schedule.LearningRate(step, group, base);
      },
      std::move(momentum_value), groups);
}

ScheduleFunction ChainedLr(std::vector<ScheduleFunction> schedules) {
  const size_t groups = CommonGroupCount("ChainedLr", schedules);
  const bool momentum = AnyChangesMomentum(schedules);
  const auto links = std::make_shared<const std::vector<ScheduleFunction>>(std::move(schedules));
  ScheduleFunction::Value momentum_value;
  if (momentum) {
    momentum_value = [links](int64_t step, size_t group, double value) {
      for (const ScheduleFunction& link : *links) value = link.Momentum(step, group, value);
      return value;
    };
  }
  return ScheduleFunction(
      [links](int64_t step, size_t group, double value) {
        for (const ScheduleFunction& link : *links) value = link.LearningRate(step, group, value);
        return value;
      },
      std::move(momentum_value), groups);
}

}  // namespace lockstep::optim
