// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/schedules/warmup.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "lockstep/nn/optim/option_checks.h"

namespace lockstep::optim {
namespace {

int64_t WarmupIterations(int64_t warmup_num_steps) {
  return std::max<int64_t>(2, warmup_num_steps);
}

double WarmupPart(WarmupType type, int64_t iteration, int64_t iterations) {
  const auto i = static_cast<double>(iteration), n = static_cast<double>(iterations);
  return type == WarmupType::kLog ? std::log(i + 1) / std::log(n) : i / n;
}

void CheckRates(absl::string_view call, double min_lr, double max_lr, int64_t warmup_num_steps) {
  RequireNotNegative(call, "warmup_min_lr", min_lr);
  RequireNotNegative(call, "warmup_max_lr", max_lr);
  RequireOption(warmup_num_steps >= 0, call, "warmup_num_steps", warmup_num_steps,
                "it is not negative");
}

}  // namespace

ScheduleFunction WarmupLr(const WarmupLrOptions& options) {
  CheckRates("WarmupLr", options.warmup_min_lr, options.warmup_max_lr, options.warmup_num_steps);
  const int64_t n = WarmupIterations(options.warmup_num_steps);
  return ScheduleFunction([options, n](int64_t step, size_t, double) {
    const int64_t i = std::max<int64_t>(0, step - 1);
    const double part = i < n ? WarmupPart(options.warmup_type, i, n) : 1;
    return options.warmup_min_lr + (options.warmup_max_lr - options.warmup_min_lr) * part;
  });
}

ScheduleFunction WarmupDecayLr(const WarmupDecayLrOptions& options) {
  CheckRates("WarmupDecayLr", options.warmup_min_lr, options.warmup_max_lr,
             options.warmup_num_steps);
  const int64_t n = WarmupIterations(options.warmup_num_steps);
  RequireOption(options.total_num_steps >= n, "WarmupDecayLr", "total_num_steps",
                options.total_num_steps, absl::StrCat("the warm-up alone has ", n));
  return ScheduleFunction([options, n](int64_t step, size_t, double) {
    const int64_t i = std::max<int64_t>(0, step - 1);
    const double left = static_cast<double>(options.total_num_steps - i) /
                        std::max(1.0, static_cast<double>(options.total_num_steps - n));
    const double part = i < n ? WarmupPart(options.warmup_type, i, n) : std::max(0.0, left);
    return options.warmup_min_lr + (options.warmup_max_lr - options.warmup_min_lr) * part;
  });
}

ScheduleFunction WarmupCosineLr(const WarmupCosineLrOptions& options) {
  const char* const call = "WarmupCosineLr";
  RequireFraction(call, "warmup_min_ratio", options.warmup_min_ratio);
  RequireFraction(call, "cos_min_ratio", options.cos_min_ratio);
  RequireOption(options.warmup_num_steps >= 0, call, "warmup_num_steps", options.warmup_num_steps,
                "it is not negative");
  const int64_t n = WarmupIterations(options.warmup_num_steps);
  RequireOption(options.total_num_steps > n, call, "total_num_steps", options.total_num_steps,
                absl::StrCat("it is above the ", n, " of the warm-up"));
  return [options, n](int64_t step) {
    if (step == 0) return 0.0;
    const int64_t i = step - 1;
    if (i < n) {
      return options.warmup_min_ratio +
             (1 - options.warmup_min_ratio) * WarmupPart(options.warmup_type, i, n);
    }
    const double x = std::min(
        1.0, static_cast<double>(i - n + 1) / static_cast<double>(options.total_num_steps - n));
    return options.cos_min_ratio +
           (1 - options.cos_min_ratio) * (1 + std::cos(std::numbers::pi * x)) / 2;
  };
}

}  // namespace lockstep::optim
