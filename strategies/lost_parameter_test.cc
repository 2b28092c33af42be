// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/lost_parameter.h"

#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using ::testing::HasSubstr;

TEST(LostParameterTest, ReadingItSaysWhy) {
  const Tensor parameter = Full({2}, 1.0);
  EXPECT_FALSE(IsLost(parameter));
  LoseParameter(parameter, {3, 4}, {.dtype = DType::kFloat64}, "its ranks are gone");
  EXPECT_TRUE(IsLost(parameter));
  EXPECT_EQ(parameter.shape(), (Shape{3, 4}));
  EXPECT_EQ(parameter.dtype(), DType::kFloat64);
  const Error read = ErrorOf([&] { parameter.ToVector<double>(); });
  EXPECT_EQ(read.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(read.message(), HasSubstr("its ranks are gone"));
  EXPECT_THAT(MessageOf([&] { Sum(parameter); }), HasSubstr("its ranks are gone"));
  EXPECT_THAT(MessageOf([&] { ZeroInPlace(parameter); }), HasSubstr("elements share memory"));
}

TEST(LostParameterTest, TheCheckNamesTheStrategyAndOthersPass) {
  const Tensor lost = Full({2}, 1.0);
  const NamedTensors tensors = {{"there", Full({2}, 1.0)}, {"lost", lost}};
  CheckNotLost("Strategy", tensors);
  LoseParameter(lost, {2}, {}, "its ranks are gone");
  const Error error = ErrorOf([&] { CheckNotLost("Strategy", tensors); });
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("Strategy: "));
  EXPECT_THAT(error.message(), HasSubstr("its ranks are gone"));
}

TEST(LostParameterTest, OtherElementsEndIt) {
  const Tensor parameter = Full({2}, 1.0);
  LoseParameter(parameter, {2}, {}, "gone");
  parameter.SetData(Full({2}, 7.0));
  EXPECT_FALSE(IsLost(parameter));
  EXPECT_EQ(parameter.ToVector<double>(), (std::vector<double>{7, 7}));
}

TEST(LostParameterTest, NoElementsCannotBeLost) {
  const Tensor parameter = Full({2}, 1.0);
  LoseParameter(parameter, {0, 4}, {}, "gone");
  EXPECT_FALSE(IsLost(parameter));
  EXPECT_EQ(parameter.shape(), (Shape{0, 4}));
}

}  // namespace
}  // namespace lockstep::strategies
