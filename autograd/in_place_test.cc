// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// In-place ops, views and version checks: right gradients or an error, never a silent wrong one.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd {
namespace {

using Values = std::vector<double>;

Tensor Constant(const Values& values) {
  return FromVector<double>(values, {static_cast<int64_t>(values.size())});
}
Tensor Leaf(const Values& values) { return SetRequiresGrad(Constant(values), true); }

template <typename Call>
void ExpectError(absl::StatusCode code, const std::vector<std::string>& texts, Call&& call) {
  const std::string message = MessageOf(code, call);
  for (const std::string& text : texts) {
    EXPECT_TRUE(absl::StrContains(message, text)) << text << " in " << message;
  }
}

constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

TEST(InPlaceTest, HistoryMovesToTheNewNode) {
  const Tensor x = Leaf({1, 2, 3}), w = Leaf({4, 5, 6});
  const Tensor y = Mul(x, 2.0);
  const Tensor same = MulInPlace(y, w);
  EXPECT_TRUE(same.IsSame(y));
  EXPECT_EQ(GradNodeName(y), "Mul");
  AddInPlace(y, x);
  EXPECT_EQ(y.ToVector<double>(), (Values{9, 22, 39}));
  Backward(Sum(y));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{9, 11, 13}));
  EXPECT_EQ(Grad(w).ToVector<double>(), (Values{2, 4, 6}));
}

TEST(InPlaceTest, AResultThatStartsToRequireGradients) {
  const Tensor w = Leaf({4, 5});
  const Tensor y = Zeros({2}, {.dtype = DType::kFloat64});
  AddInPlace(y, w);
  MulInPlace(y, 3.0);
  EXPECT_TRUE(RequiresGrad(y));
  Backward(Sum(y));
  EXPECT_EQ(Grad(w).ToVector<double>(), (Values{3, 3}));
}

TEST(InPlaceTest, OwnInputIsSavedBeforeItIsOverwritten) {
  const Tensor x = Leaf({3, 4});
  const Tensor y = Mul(x, 1.0);
  LogInPlace(y);  // the gradient needs what y was
  Backward(Sum(y));
  EXPECT_NEAR(Grad(x).Item<double>({0}), 1.0 / 3, 1e-15);
  EXPECT_NEAR(Grad(x).Item<double>({1}), 0.25, 1e-15);

  const Tensor z = Mul(x, 1.0);
  MulInPlace(z, z);
  SetGrad(x, {});
  Backward(Sum(z));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{6, 8}));
}

// y = log(x); x.log_(): both are log(3), not the logarithm of it.
TEST(InPlaceTest, LogThenLogInPlace) {
  const Tensor x = Constant({3});
  const Tensor y = Log(x);
  LogInPlace(x);
  EXPECT_NEAR(y.Item<double>(), 1.0986122886681098, 1e-15);
  EXPECT_NEAR(x.Item<double>(), 1.0986122886681098, 1e-15);
  const Tensor leaf = Leaf({3});
  const Tensor a = Mul(leaf, 1.0);
  const Tensor b = Log(a);
  LogInPlace(a);
  EXPECT_NEAR(b.Item<double>(), 1.0986122886681098, 1e-15);
  ExpectError(kPrecondition, {"Log", "version"}, [&] { Backward(b); });
}

// x += transpose(x) reads everything before it writes.
TEST(InPlaceTest, AddOfAnOverlappingView) {
  const Tensor x = Leaf({1, 2, 3, 4});
  const Tensor square = View(Mul(x, 1.0), {2, 2});
  const Tensor sum = Mul(square, 1.0);
  AddInPlace(sum, Transpose(sum, 0, 1));
  EXPECT_EQ(sum.ToVector<double>(), (Values{2, 5, 5, 8}));
}

TEST(InPlaceTest, LeavesMayNotChangeWhileRecording) {
  const Tensor w = Leaf({1, 2});
  ExpectError(kPrecondition, {"NoGradScope", "leaf"}, [&] { AddInPlace(w, 1.0); });
  ExpectError(kPrecondition, {"NoGradScope", "leaf"}, [&] { CopyInto(w, Constant({5, 6})); });
  EXPECT_EQ(w.ToVector<double>(), (Values{1, 2}));
  {
    NoGradScope no_grad;
    AddInPlace(w, 1.0);
  }
  EXPECT_EQ(w.ToVector<double>(), (Values{2, 3}));
  EXPECT_TRUE(IsLeaf(w));
  // Ops without gradients neither.
  ExpectError(kPrecondition, {"SgdStep", "NoGradScope"}, [&] {
    SgdStep({w}, {Constant({1, 1})}, {}, {.lr = 1});
  });
  NoGradScope no_grad;
  SgdStep({w}, {Constant({1, 1})}, {}, {.lr = 1});
  EXPECT_EQ(w.ToVector<double>(), (Values{1, 2}));
}

TEST(VersionTest, SavedInputsAndOutputsAreChecked) {
  const Tensor x = Leaf({1, 2}), w = Leaf({3, 4});
  {
    const Tensor a = Mul(x, 1.0);
    const Tensor y = Sum(Mul(a, w));
    AddInPlace(a, 1.0);
    ExpectError(kPrecondition, {"Mul", "input 0", "Clone()"}, [&] { Backward(y); });
  }
  {
    const Tensor a = Exp(x);
    const Tensor y = Sum(a);
    AddInPlace(a, 1.0);
    ExpectError(kPrecondition, {"Exp", "output 0", "version 0 then, 1 now"}, [&] { Backward(y); });
  }
  {
    const Tensor a = Mul(x, 1.0);
    const Tensor y = Sum(Add(a, w));  // saves nothing
    AddInPlace(a, 1.0);
    Backward(y);
  }
  {  // through a view of what was saved, and without recording
    const Tensor a = Mul(x, 1.0);
    const Tensor y = Sum(Mul(a, w));
    {
      NoGradScope no_grad;
      FillInPlace(Slice(a, 0, 0, 1), 7.0);
    }
    ExpectError(kPrecondition, {"Mul", "version"}, [&] { Backward(y); });
  }
  {  // a leaf changed under NoGradScope between forward and backward
    const Tensor y = Sum(Mul(x, w));
    {
      NoGradScope no_grad;
      AddInPlace(w, 1.0);
    }
    ExpectError(kPrecondition, {"Mul", "version"}, [&] { Backward(y); });
  }
}

TEST(ViewTest, RecordedWritesToViewsAreRefused) {
  const Tensor x = Leaf({1, 2, 3, 4});
  const Tensor y = Mul(x, 1.0);
  const Tensor row = Slice(y, 0, 0, 2);
  ExpectError(absl::StatusCode::kUnimplemented, {"view", "NoGradScope"},
              [&] { AddInPlace(row, 1.0); });
  const Tensor buffer = Zeros({4}, {.dtype = DType::kFloat64});
  const Tensor part = Slice(buffer, 0, 0, 2);
  ExpectError(absl::StatusCode::kUnimplemented, {"view"},
              [&] { CopyInto(part, Slice(x, 0, 0, 2)); });
  // Without gradients writes to views are fine.
  AddInPlace(part, 1.0);
  EXPECT_EQ(buffer.ToVector<double>(), (Values{1, 1, 0, 0}));
}

TEST(ViewTest, ViewsMadeWithoutRecordingAreRefusedToo) {
  const Tensor w = Leaf({1, 2});
  const Tensor buffer = Zeros({4}, {.dtype = DType::kFloat64});
  Tensor part, whole;
  {
    NoGradScope no_grad;
    part = Slice(buffer, 0, 0, 2);
    whole = View(Zeros({2}, {.dtype = DType::kFloat64}), {2});
  }
  ExpectError(kPrecondition, {"shares its elements", "Clone()"}, [&] { AddInPlace(part, w); });
  AddInPlace(whole, w);  // nobody else holds those elements
  EXPECT_TRUE(RequiresGrad(whole));
}

TEST(ViewTest, StaleViewsAreRefused) {
  const Tensor x = Leaf({1, 2, 3, 4}), w = Leaf({1, 1, 2, 2});
  const Tensor y = Mul(x, 1.0);
  const Tensor before = Slice(y, 0, 1, 3);
  const Tensor of_view = View(before, {2, 1});
  MulInPlace(y, w);
  ExpectError(kPrecondition, {"Mul", "make the view again"}, [&] { Mul(before, 2.0); });
  ExpectError(kPrecondition, {"make the view again"}, [&] { Add(of_view, of_view); });
  ExpectError(kPrecondition, {"make the view again"}, [&] { View(before, {2, 1}); });
  ExpectError(kPrecondition, {"make the view again"}, [&] { Backward(before, {}); });
  const Tensor after = Slice(y, 0, 1, 3);
  Backward(Sum(after));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{0, 1, 2, 0}));
  EXPECT_EQ(Grad(w).ToVector<double>(), (Values{0, 2, 3, 0}));
  EXPECT_EQ(Detach(before).ToVector<double>(), (Values{2, 6}));  // values may be read
}

TEST(ViewTest, AViewOfAConstantGoesStaleWhenItsBaseGetsAHistory) {
  const Tensor w = Leaf({1, 2});
  const Tensor base = Mul(w, 1.0);
  const Tensor view = View(base, {1, 2});
  CopyInto(base, Constant({5, 6}));
  ExpectError(kPrecondition, {"make the view again"}, [&] { Mul(view, view); });
}

TEST(CopyIntoTest, OverwritesTheHistory) {
  const Tensor x = Leaf({1, 2}), w = Leaf({5});
  const Tensor y = Mul(x, 3.0);
  const Tensor before = Sum(y);
  CopyInto(y, w);
  EXPECT_EQ(y.ToVector<double>(), (Values{5, 5}));
  Backward({Sum(Mul(y, Constant({2, 3}))), before});
  EXPECT_EQ(Grad(w).ToVector<double>(), (Values{5}));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{3, 3}));  // through `before` only
}

TEST(CopyIntoTest, CastsTheGradient) {
  const Tensor w = SetRequiresGrad(FromVector<float>({1, 2}, {2}), true);
  const Tensor y = Zeros({2}, {.dtype = DType::kFloat64});
  CopyInto(y, w);
  Backward(Sum(Mul(y, y)));
  EXPECT_EQ(Grad(w).dtype(), DType::kFloat32);
  EXPECT_EQ(Grad(w).ToVector<double>(), (Values{2, 4}));
}

TEST(CopyIntoTest, AConstantCutsTheHistory) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = Mul(x, 3.0);
  CopyInto(y, Constant({7, 8}));
  Backward(Sum(Mul(y, x)));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{7, 8}));
}

TEST(RetainTest, FollowsAnInPlaceOp) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = Mul(x, 3.0);
  RetainGrad(y);
  MulInPlace(y, 2.0);
  Backward(Sum(Mul(y, 5.0)));
  EXPECT_EQ(Grad(y).ToVector<double>(), (Values{5, 5}));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{30, 30}));
}

}  // namespace
}  // namespace lockstep::autograd
