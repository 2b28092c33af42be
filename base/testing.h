// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// For tests of what is thrown.
//
//   EXPECT_EQ(ErrorOf([&] { x.size(2); }).code(), absl::StatusCode::kOutOfRange);
#ifndef LOCKSTEP_BASE_TESTING_H_
#define LOCKSTEP_BASE_TESTING_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"

namespace lockstep {

// The Error that `body` throws. When it throws none, fails the current test and returns one with
// the code kUnknown; other exceptions pass through.
template <typename Body>
Error ErrorOf(Body&& body) {
  try {
    std::forward<Body>(body)();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(absl::StatusCode::kUnknown, "");
}

// Its message.
template <typename Body>
std::string MessageOf(Body&& body) {
  return ErrorOf(std::forward<Body>(body)).message();
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_TESTING_H_
