// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/error.h"

#include "absl/strings/str_cat.h"

namespace lockstep {

Error::Error(absl::StatusCode code, absl::string_view message)
    : code_(code),
      message_(message),
      what_(absl::StrCat(absl::StatusCodeToString(code), ": ", message)) {}

Error Error::WithContext(absl::string_view context) const {
  return Error(code_, absl::StrCat(context, ": ", message_));
}

Error InvalidArgumentError(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, message);
}
Error OutOfRangeError(absl::string_view message) {
  return Error(absl::StatusCode::kOutOfRange, message);
}
Error FailedPreconditionError(absl::string_view message) {
  return Error(absl::StatusCode::kFailedPrecondition, message);
}
Error UnimplementedError(absl::string_view message) {
  return Error(absl::StatusCode::kUnimplemented, message);
}
Error NotFoundError(absl::string_view message) {
  return Error(absl::StatusCode::kNotFound, message);
}
Error AlreadyExistsError(absl::string_view message) {
  return Error(absl::StatusCode::kAlreadyExists, message);
}
Error ResourceExhaustedError(absl::string_view message) {
  return Error(absl::StatusCode::kResourceExhausted, message);
}
Error DataLossError(absl::string_view message) {
  return Error(absl::StatusCode::kDataLoss, message);
}
Error DeadlineExceededError(absl::string_view message) {
  return Error(absl::StatusCode::kDeadlineExceeded, message);
}
Error UnavailableError(absl::string_view message) {
  return Error(absl::StatusCode::kUnavailable, message);
}
Error AbortedError(absl::string_view message) { return Error(absl::StatusCode::kAborted, message); }
Error InternalError(absl::string_view message) {
  return Error(absl::StatusCode::kInternal, message);
}

void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw Error(status.code(), status.message());
}

}  // namespace lockstep
