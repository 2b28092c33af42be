// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/grad_mode.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/custom_function.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd {
namespace {

Tensor Leaf() { return SetRequiresGrad(FromVector<double>({1, 2, 3}, {3}), true); }

template <typename Call>
void ExpectPrecondition(const std::string& text, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition) << error.what();
    EXPECT_NE(error.message().find(text), std::string::npos) << error.what();
  }
}

TEST(NoGradScopeTest, NothingIsRecorded) {
  const Tensor x = Leaf();
  EXPECT_TRUE(GradEnabled());
  {
    NoGradScope no_grad;
    EXPECT_FALSE(GradEnabled());
    EXPECT_FALSE(RequiresGrad(Mul(x, x)));
    EXPECT_TRUE(RequiresGrad(x));
    {
      EnableGradScope grad;
      EXPECT_TRUE(GradEnabled());
      EXPECT_TRUE(RequiresGrad(Mul(x, x)));
    }
    EXPECT_FALSE(GradEnabled());
  }
  EXPECT_TRUE(GradEnabled());
}

TEST(NoGradScopeTest, IsThisThreadsOnly) {
  NoGradScope no_grad;
  bool enabled = false;
  std::thread([&] { enabled = GradEnabled(); }).join();
  EXPECT_TRUE(enabled);
}

TEST(NoGradScopeTest, ResultsAreConstants) {
  const Tensor x = Leaf();
  Tensor y;
  {
    NoGradScope no_grad;
    y = Mul(x, x);
  }
  Backward(Sum(Mul(x, y)));
  EXPECT_EQ(Grad(x).ToVector<double>(), (std::vector<double>{1, 4, 9}));
}

TEST(InferenceScopeTest, ResultsMayNotEnterARecordedOp) {
  const Tensor x = Leaf();
  Tensor y, inner;
  {
    InferenceScope inference;
    EXPECT_FALSE(GradEnabled());
    EXPECT_TRUE(InferenceEnabled());
    y = Mul(x, x);
    NoGradScope no_grad;
    inner = Mul(x, 2.0);
  }
  EXPECT_FALSE(InferenceEnabled());
  EXPECT_TRUE(GradEnabled());
  EXPECT_FALSE(RequiresGrad(y));
  ExpectPrecondition("InferenceScope", [&] { Mul(x, y); });
  ExpectPrecondition("InferenceScope", [&] { Mul(x, inner); });
  ExpectPrecondition("InferenceScope", [&] { SetRequiresGrad(y, true); });
  Mul(y, y);  // not recorded
  Backward(Sum(Mul(x, Clone(y))));
  EXPECT_EQ(Grad(x).ToVector<double>(), (std::vector<double>{1, 4, 9}));
  NoGradScope no_grad;
  EXPECT_EQ(Mul(x, y).ToVector<double>(), (std::vector<double>{1, 8, 27}));
}

TEST(InferenceScopeTest, ViewsOfTensorsFromOutsideAreOrdinary) {
  const Tensor x = Leaf(), constant = FromVector<double>({4, 5, 6}, {3});
  Tensor inside, outside;
  {
    InferenceScope inference;
    inside = View(Mul(constant, 2.0), {3, 1});
    outside = View(constant, {3, 1});
  }
  ExpectPrecondition("InferenceScope", [&] { Mul(x, inside); });
  Mul(x, outside);
}

TEST(InferenceScopeTest, NothingCanBeRecordedInside) {
  InferenceScope inference;
  ExpectPrecondition("NoGradScope", [] { EnableGradScope grad; });
  EXPECT_FALSE(GradEnabled());
  ExpectPrecondition("does not require a gradient", [] { Backward(Sum(Mul(Leaf(), 2.0))); });
}

}  // namespace
}  // namespace lockstep::autograd
