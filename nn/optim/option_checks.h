// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Checks of the options of optimizers and schedules. Each names the field, the value and the range.
//
//   RequireNotNegative("Adam", "lr", options.lr);
//   // "Adam: lr is -1; it is finite and not negative"
#ifndef LOCKSTEP_NN_OPTIM_OPTION_CHECKS_H_
#define LOCKSTEP_NN_OPTIM_OPTION_CHECKS_H_

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"

namespace lockstep::optim {

// Throws InvalidArgument "call: name is value; remedy" unless `valid`.
template <typename Value>
void RequireOption(bool valid, absl::string_view call, absl::string_view name, const Value& value,
                   absl::string_view remedy) {
  if (!valid) {
    throw InvalidArgumentError(absl::StrCat(call, ": ", name, " is ", value, "; ", remedy));
  }
}

inline void RequireNotNegative(absl::string_view call, absl::string_view name, double value) {
  RequireOption(value >= 0 && !std::isinf(value), call, name, value,
                "it is finite and not negative");
}

// Within [0, 1).
inline void RequireBeta(absl::string_view call, absl::string_view name, double value) {
  RequireOption(value >= 0 && value < 1, call, name, value, "it is within [0, 1)");
}

// Within [0, 1].
inline void RequireFraction(absl::string_view call, absl::string_view name, double value) {
  RequireOption(value >= 0 && value <= 1, call, name, value, "it is within [0, 1]");
}

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_OPTION_CHECKS_H_
