// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/schedules/cosine.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/optim/option_checks.h"

namespace lockstep::optim {
namespace {

// From `from` at step 0 to `to` at step `period`.
double HalfCosine(double from, double to, int64_t step, int64_t period) {
  const double angle = std::numbers::pi * static_cast<double>(step) / static_cast<double>(period);
  return to + (from - to) * (1 + std::cos(angle)) / 2;
}

}  // namespace

ScheduleFunction CosineAnnealingLr(const CosineAnnealingLrOptions& options) {
  RequireOption(options.t_max >= 1, "CosineAnnealingLr", "t_max", options.t_max,
                "it is at least 1");
  RequireNotNegative("CosineAnnealingLr", "eta_min", options.eta_min);
  return ScheduleFunction([options](int64_t step, size_t, double base) {
    // Whole periods off, so that a late step is as exact as an early one.
    return HalfCosine(base, options.eta_min, step % (2 * options.t_max), options.t_max);
  });
}

ScheduleFunction CosineAnnealingWarmRestarts(const CosineAnnealingWarmRestartsOptions& options) {
  const char* const call = "CosineAnnealingWarmRestarts";
  RequireOption(options.t_0 >= 1, call, "t_0", options.t_0, "it is at least 1");
  RequireOption(options.t_mult >= 1, call, "t_mult", options.t_mult, "it is at least 1");
  RequireNotNegative(call, "eta_min", options.eta_min);
  return ScheduleFunction([options](int64_t step, size_t, double base) {
    int64_t period = options.t_0;
    if (options.t_mult == 1) step %= period;
    while (step >= period) {
      step -= period;
      if (period > std::numeric_limits<int64_t>::max() / options.t_mult) break;
      period *= options.t_mult;
    }
    return HalfCosine(base, options.eta_min, step, period);
  });
}

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
    const double progress =
        (static_cast<double>(step) - warmup) / (static_cast<double>(options.total_steps) - warmup);
    return options.final_fraction +
           (1 - options.final_fraction) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
  };
}

}  // namespace lockstep::optim
