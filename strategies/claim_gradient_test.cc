// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/claim_gradient.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using ::testing::HasSubstr;

Tensor Parameter() { return autograd::SetRequiresGrad(Full({2}, 1.0), true); }

TEST(ClaimGradientTest, TheHookRunsUntilItsHandleIsRemoved) {
  const Tensor parameter = Parameter();
  int calls = 0;
  autograd::HookHandle handle =
      ClaimGradient("First", "w", parameter, [&](const Tensor&) { ++calls; });
  autograd::Backward(Sum(parameter * 2.0));
  EXPECT_EQ(calls, 1);
  handle.Remove();
  autograd::Backward(Sum(parameter * 2.0));
  EXPECT_EQ(calls, 1);
}

TEST(ClaimGradientTest, OneStrategyAtATime) {
  const Tensor parameter = Parameter();
  const auto nothing = [](const Tensor&) {};
  autograd::HookHandle handle = ClaimGradient("First", "w", parameter, nothing);
  const Error error = ErrorOf([&] { ClaimGradient("Second", "net.w", parameter, nothing); });
  EXPECT_EQ(error.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(error.message(), HasSubstr("Second: the gradient of net.w is averaged by another"));
  handle.Remove();
  ClaimGradient("Second", "net.w", parameter, nothing).Remove();
}

TEST(ClaimGradientTest, TheCheckNamesTheFirstAndClaimsNothing) {
  const Tensor mine = Parameter(), theirs = Parameter(), frozen = Full({2}, 1.0);
  const NamedTensors parameters = {{"frozen", frozen}, {"mine", mine}, {"theirs", theirs}};
  CheckUnclaimed("Second", parameters);
  autograd::HookHandle handle = ClaimGradient("First", "w", theirs, [](const Tensor&) {});
  for (int i = 0; i < 2; ++i) {
    const Error error = ErrorOf([&] { CheckUnclaimed("Second", parameters); });
    EXPECT_EQ(error.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(error.message(), HasSubstr("Second: the gradient of theirs"));
  }
  handle.Remove();
  CheckUnclaimed("Second", parameters);
}

// Only what claims is refused: a hook of the program's own may be beside it.
TEST(ClaimGradientTest, OtherHooksMayBeThere) {
  const Tensor parameter = Parameter();
  int calls = 0;
  autograd::HookHandle own =
      autograd::RegisterPostAccumulateGradHook(parameter, [&](const Tensor&) { ++calls; });
  autograd::HookHandle handle =
      ClaimGradient("First", "w", parameter, [&](const Tensor&) { ++calls; });
  autograd::Backward(Sum(parameter));
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace lockstep::strategies
