// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// For tests of what is thrown.
//
//   ExpectError(absl::StatusCode::kOutOfRange, "size(2)", [&] { x.size(2); });
#ifndef LOCKSTEP_BASE_TESTING_H_
#define LOCKSTEP_BASE_TESTING_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
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

// Its message; the error must have `code`.
template <typename Body>
std::string MessageOf(absl::StatusCode code, Body&& body) {
  const Error error = ErrorOf(std::forward<Body>(body));
  EXPECT_EQ(error.code(), code) << error.what();
  return error.message();
}

// `body` throws an Error with `code` and with `part` in its message.
template <typename Body>
void ExpectError(absl::StatusCode code, absl::string_view part, Body&& body) {
  const std::string message = MessageOf(code, std::forward<Body>(body));
  EXPECT_TRUE(absl::StrContains(message, part)) << "'" << message << "' lacks '" << part << "'";
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_TESTING_H_
