// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/schedules/factor.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/optim/option_checks.h"

namespace lockstep::optim {

ScheduleFunction ConstantLr(const ConstantLrOptions& options) {
  RequireFraction("ConstantLr", "factor", options.factor);
  RequireOption(options.total_iters >= 0, "ConstantLr", "total_iters", options.total_iters,
                "it is not negative");
  return [options](int64_t step) { return step < options.total_iters ? options.factor : 1.0; };
}

ScheduleFunction LinearLr(const LinearLrOptions& options) {
  RequireOption(options.start_factor > 0 && options.start_factor <= 1, "LinearLr", "start_factor",
                options.start_factor, "it is above 0 and at most 1");
  RequireFraction("LinearLr", "end_factor", options.end_factor);
  RequireOption(options.total_iters >= 1, "LinearLr", "total_iters", options.total_iters,
                "it is at least 1");
  return [options](int64_t step) {
    const auto done = static_cast<double>(std::min(step, options.total_iters));
    return options.start_factor + (options.end_factor - options.start_factor) * done /
                                      static_cast<double>(options.total_iters);
  };
}

ScheduleFunction LambdaLr(std::vector<std::function<double(int64_t)>> factors) {
  RequireOption(!factors.empty(), "LambdaLr", "the number of functions", factors.size(),
                "give one for each group");
  for (size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] == nullptr) {
      throw InvalidArgumentError(absl::StrCat("LambdaLr: the function of group ", i, " is null"));
    }
  }
  const size_t count = factors.size();
  return ScheduleFunction(
      [factors = std::move(factors)](int64_t step, size_t group, double base) {
        return base * factors.at(group)(step);
      },
      nullptr, count);
}

}  // namespace lockstep::optim
