// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/base/error.h"

#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

static_assert(std::is_base_of_v<std::exception, Error>);

TEST(ErrorTest, CarriesCodeAndMessage) {
  try {
    throw InvalidArgumentError("MatMul: inner dimensions differ: [2, 3] x [4, 5]");
  } catch (const std::exception& e) {
    EXPECT_STREQ(e.what(), "INVALID_ARGUMENT: MatMul: inner dimensions differ: [2, 3] x [4, 5]");
    const auto* error = dynamic_cast<const Error*>(&e);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(error->message(), "MatMul: inner dimensions differ: [2, 3] x [4, 5]");
  }
}

TEST(ErrorTest, MakersHaveTheirCodes) {
  EXPECT_EQ(InvalidArgumentError("x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OutOfRangeError("x").code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(FailedPreconditionError("x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(UnimplementedError("x").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(NotFoundError("x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(AlreadyExistsError("x").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ResourceExhaustedError("x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DataLossError("x").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DeadlineExceededError("x").code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(UnavailableError("x").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(AbortedError("x").code(), absl::StatusCode::kAborted);
  EXPECT_EQ(InternalError("x").code(), absl::StatusCode::kInternal);
}

TEST(ErrorTest, WithContextKeepsTheCode) {
  const Error error = DataLossError("checksum differs").WithContext("Load(model)");
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(error.message(), "Load(model): checksum differs");
  EXPECT_STREQ(error.what(), "DATA_LOSS: Load(model): checksum differs");
}

TEST(ErrorTest, ConvertsToAndFromStatus) {
  const absl::Status status = UnavailableError("rank 2 is gone").ToStatus();
  EXPECT_EQ(status, absl::UnavailableError("rank 2 is gone"));
  EXPECT_NO_THROW(ThrowIfError(absl::OkStatus()));
  try {
    ThrowIfError(status);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(e.message(), "rank 2 is gone");
  }
}

}  // namespace
}  // namespace lockstep
