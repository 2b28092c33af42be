// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/claim_sharding.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using ::testing::HasSubstr;

TEST(ClaimShardingTest, IsThereUntilItsHandleIsRemovedForFrozenOnesToo) {
  for (const bool frozen : {false, true}) {
    const Tensor parameter = autograd::SetRequiresGrad(Full({2}, 1.0), !frozen);
    const NamedTensors tensors = {{"other", Full({2}, 1.0)}, {"net.w", parameter}};
    CheckUnsharded("Second", tensors);
    autograd::HookHandle handle = ClaimSharded("First", "w", parameter);
    EXPECT_EQ(autograd::RequiresGrad(parameter), !frozen) << "left as it was";
    for (int i = 0; i < 2; ++i) {
      const Error error = ErrorOf([&] { CheckUnsharded("Second", tensors); });
      EXPECT_EQ(error.code(), absl::StatusCode::kAlreadyExists);
      EXPECT_THAT(error.message(), HasSubstr("Second: net.w is sharded by"));
    }
    handle.Remove();
    CheckUnsharded("Second", tensors);
    EXPECT_EQ(autograd::RequiresGrad(parameter), !frozen);
  }
}

// Integers, and results of ops.
TEST(ClaimShardingTest, WhatCannotHaveAGradientIsNotMarked) {
  const Tensor leaf = autograd::SetRequiresGrad(Full({2}, 1.0), true);
  const NamedTensors tensors = {{"counts", Full({2}, 1.0, {.dtype = DType::kInt64})},
                                {"result", leaf * 2.0}};
  for (const auto& [name, tensor] : tensors) {
    autograd::HookHandle handle = ClaimSharded("First", name, tensor);
    CheckUnsharded("Second", tensors);
  }
}

}  // namespace
}  // namespace lockstep::strategies
