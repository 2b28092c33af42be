// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The one exception type that Lockstep throws for conditions a caller can cause or meet.
//
// The message begins with the call, gives the actual values (shapes, dtypes, devices, ranks) and
// says what to do. The code tells a program how to react; docs/errors.md lists each code with the
// caller's action.
//
//   if (a.size(1) != b.size(0)) {
//     throw InvalidArgumentError(absl::StrCat("MatMul: inner dimensions differ: ",
//                                             ToString(a.shape()), " x ", ToString(b.shape())));
//   }
//   ...
//   try { state::LoadTrainingState(path); } catch (const lockstep::Error& e) {
//     if (e.code() == absl::StatusCode::kDataLoss) UseOlderFile();
//   }
#ifndef LOCKSTEP_BASE_ERROR_H_
#define LOCKSTEP_BASE_ERROR_H_

#if __cplusplus < 202002L
#error "Lockstep needs C++20: add `build --cxxopt=-std=c++20` to your workspace's .bazelrc"
#endif

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// Immutable; copying never throws more than std::bad_alloc. Safe to pass between threads.
class Error : public std::exception {
 public:
  Error(absl::StatusCode code, absl::string_view message);

  absl::StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // "INVALID_ARGUMENT: MatMul: inner dimensions differ: [2, 3] x [4, 5]".
  const char* what() const noexcept override { return what_.c_str(); }

  absl::Status ToStatus() const { return absl::Status(code_, message_); }

  // The same error with `context` put in front: "context: message".
  Error WithContext(absl::string_view context) const;

 private:
  absl::StatusCode code_;
  std::string message_;
  std::string what_;
};

// Makers, to be thrown: `throw InvalidArgumentError(...)`.
Error InvalidArgumentError(absl::string_view message);     // wrong argument, whatever the state
Error OutOfRangeError(absl::string_view message);          // index or size beyond what exists
Error FailedPreconditionError(absl::string_view message);  // right argument, wrong moment
Error UnimplementedError(absl::string_view message);       // refused combination; says what to use
Error NotFoundError(absl::string_view message);            // file, key or name that does not exist
Error AlreadyExistsError(absl::string_view message);       // would overwrite
Error ResourceExhaustedError(absl::string_view message);   // memory or a capacity limit
Error DataLossError(absl::string_view message);            // damaged or truncated data
Error DeadlineExceededError(absl::string_view message);    // a peer or service did not answer
Error UnavailableError(absl::string_view message);         // a peer died or a connection broke
Error AbortedError(absl::string_view message);             // stopped because another rank failed
Error InternalError(absl::string_view message);            // our bug, or the system misbehaved

// Throws `status` as an Error unless it is OK.
void ThrowIfError(const absl::Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_ERROR_H_
