// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What functions of the user's throw, as one type of error that says where. Internal.
//
//   CallNamed([&] { return Place(); }, [&] { options.after_last_backward(stage); });
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_NAMED_ERRORS_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_NAMED_ERRORS_H_

#include <exception>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::pipeline {

// Returns what `function` returns. What it throws is thrown as an Error with `place()`, a text,
// before its message: of its code, or Internal, nested, where it is none.
template <typename Place, typename Function>
auto CallNamed(const Place& place, const Function& function) {
  try {
    return function();
  } catch (const Error& error) {
    throw error.WithContext(place());
  } catch (const std::exception& error) {
    std::throw_with_nested(InternalError(absl::StrCat(place(), ": ", error.what())));
  } catch (...) {
    std::throw_with_nested(
        InternalError(absl::StrCat(place(), ": an exception of no standard type")));
  }
}

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_NAMED_ERRORS_H_
