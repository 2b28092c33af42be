// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/amp/non_finite/find_non_finite.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::amp {
namespace {

TensorList PassOn(const OpCall& call) { return DispatchBelow(DispatchLayer::kUser, call); }

TEST(UserSlotTest, ALayerOfTheProgramKeepsIt) {
  RegisterLayer(DispatchLayer::kUser, &PassOn, /*on_by_default=*/true);
  for (int i = 0; i < 2; ++i) {
    bool ran = false;
    const Error error = ErrorOf([&] { FindNonFinite([&] { ran = true; }); });
    EXPECT_EQ(error.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(error.message(), ::testing::HasSubstr("user slot of dispatch"));
    EXPECT_FALSE(ran);
  }
  EXPECT_EQ((Full({}, 2.0) + 1.0).Item<double>(), 3);
}

}  // namespace
}  // namespace lockstep::amp
