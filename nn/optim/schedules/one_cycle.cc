// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/schedules/one_cycle.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/optim/option_checks.h"

namespace lockstep::optim {
namespace {

// Where in the cycle a step is: between two of its corners.
enum Corner : uint8_t { kFirst, kPeak, kLast };
struct Position {
  Corner from;
  Corner to;
  double progress;  // 0 at `from`, 1 at `to`
};

void Validate(const OneCycleLrOptions& options) {
  const char* const call = "OneCycleLr";
  RequireOption(options.total_steps >= 1, call, "total_steps", options.total_steps,
                "it is at least 1");
  for (const double rate : options.max_lr) RequireNotNegative(call, "max_lr", rate);
  RequireFraction(call, "pct_start", options.pct_start);
  RequireOption(!options.three_phase || options.pct_start <= 0.5, call, "pct_start",
                options.pct_start, "with three_phase it is at most 0.5");
  RequireBeta(call, "base_momentum", options.base_momentum);
  RequireBeta(call, "max_momentum", options.max_momentum);
  const auto is_divisor = [](double value) { return value > 0 && !std::isinf(value); };
  RequireOption(is_divisor(options.div_factor), call, "div_factor", options.div_factor,
                "it is finite and above 0");
  RequireOption(is_divisor(options.final_div_factor), call, "final_div_factor",
                options.final_div_factor, "it is finite and above 0");
}

Position PositionOf(const OneCycleLrOptions& options, int64_t step) {
  if (step > options.total_steps) {
    throw OutOfRangeError(absl::StrCat("OneCycleLr: step ", step, " of ", options.total_steps,
                                       "; make the schedule with the steps of the whole run"));
  }
  const double last = static_cast<double>(options.total_steps - 1);
  const double at = std::min(static_cast<double>(step), last);
  const double rise = options.pct_start * static_cast<double>(options.total_steps);
  const auto between = [at](Corner from, Corner to, double begin, double end) {
    return Position{from, to, end > begin ? (at - begin) / (end - begin) : 1};
  };
  if (at <= rise - 1) return between(kFirst, kPeak, 0, rise - 1);
  if (!options.three_phase) return between(kPeak, kLast, rise - 1, last);
  if (at <= 2 * rise - 2) return between(kPeak, kFirst, rise - 1, 2 * rise - 2);
  return between(kFirst, kLast, 2 * rise - 2, last);
}

double Anneal(AnnealStrategy strategy, double from, double to, double progress) {
  if (strategy == AnnealStrategy::kLinear) return (to - from) * progress + from;
  return to + (from - to) / 2 * (std::cos(std::numbers::pi * progress) + 1);
}

double RateAt(const OneCycleLrOptions& options, Corner corner, double peak) {
  if (corner == kPeak) return peak;
  const double first = peak / options.div_factor;
  return corner == kFirst ? first : first / options.final_div_factor;
}

double MomentumAt(const OneCycleLrOptions& options, Corner corner) {
  return corner == kPeak ? options.base_momentum : options.max_momentum;
}

}  // namespace

ScheduleFunction OneCycleLr(const OneCycleLrOptions& options) {
  Validate(options);
  ScheduleFunction::Value rate = [options](int64_t step, size_t group, double base) {
    const double peak = options.max_lr.empty()       ? base
                        : options.max_lr.size() == 1 ? options.max_lr[0]
                                                     : options.max_lr.at(group);
    const Position position = PositionOf(options, step);
    return Anneal(options.anneal_strategy, RateAt(options, position.from, peak),
                  RateAt(options, position.to, peak), position.progress);
  };
  ScheduleFunction::Value momentum;
  if (options.cycle_momentum) {
    momentum = [options](int64_t step, size_t, double) {
      const Position position = PositionOf(options, step);
      return Anneal(options.anneal_strategy, MomentumAt(options, position.from),
                    MomentumAt(options, position.to), position.progress);
    };
  }
  return ScheduleFunction(std::move(rate), std::move(momentum),
                          options.max_lr.size() > 1 ? options.max_lr.size() : 0);
}

}  // namespace lockstep::optim
