// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/hooks.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd {
namespace {

using Values = std::vector<double>;

Tensor Leaf(const Values& values) {
  return SetRequiresGrad(FromVector<double>(values, {static_cast<int64_t>(values.size())}), true);
}

TEST(HookTest, SeesTheWholeGradientOnceAndMayReplaceIt) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = Mul(x, 3.0);
  std::vector<Values> seen;
  RegisterHook(y, [&](const Tensor& g) {
    seen.push_back(g.ToVector<double>());
    return Mul(g, 10.0);
  });
  RegisterHook(y, [&](const Tensor& g) {
    seen.push_back(g.ToVector<double>());
    return Tensor();
  });
  Backward(Sum(Add(y, Mul(y, 2.0))));
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], (Values{3, 3}));
  EXPECT_EQ(seen[1], (Values{30, 30}));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{90, 90}));
}

TEST(HookTest, OnALeaf) {
  const Tensor x = Leaf({1, 2});
  int calls = 0;
  HookHandle handle = RegisterHook(x, [&](const Tensor& g) {
    ++calls;
    return Mul(g, -1.0);
  });
  Backward(Sum(Mul(x, x)));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{-2, -4}));
  EXPECT_EQ(Gradients({Sum(Mul(x, x))}, {x})[0].ToVector<double>(), (Values{-2, -4}));
  EXPECT_EQ(calls, 2);
  handle.Remove();
  handle.Remove();
  Backward(Sum(Mul(x, x)));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{0, 0}));
}

TEST(HookTest, AHandleMayOutliveItsTensor) {
  HookHandle handle;
  {
    const Tensor x = Leaf({1});
    handle = RegisterHook(x, [](const Tensor& g) { return g; });
  }
  handle.Remove();
  HookHandle().Remove();
}

TEST(HookTest, AHookMayRemoveItself) {
  const Tensor x = Leaf({1});
  int calls = 0;
  HookHandle handle;
  handle = RegisterHook(x, [&](const Tensor&) {
    ++calls;
    handle.Remove();
    return Tensor();
  });
  Backward(Sum(x));
  Backward(Sum(x));
  EXPECT_EQ(calls, 1);
}

TEST(HookTest, AGradientThatIsKeptIsNotChangedLater) {
  const Tensor x = Leaf({1, 2}), w = Leaf({5, 7});
  const Tensor y = Mul(x, w);
  Tensor kept;
  RegisterHook(y, [&](const Tensor& g) {
    kept = g;
    return Tensor();
  });
  Backward(Sum(Add(Add(y, y), Add(x, y))));
  EXPECT_EQ(kept.ToVector<double>(), (Values{3, 3}));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{16, 22}));
  Tensor leaf_gradient;
  RegisterHook(w, [&](const Tensor& g) {
    leaf_gradient = g;
    return Tensor();
  });
  SetGrad(w, {});
  Backward(Sum(Mul(x, w)));
  Backward(Sum(Mul(Mul(x, w), 10.0)), {});
  EXPECT_EQ(leaf_gradient.ToVector<double>(), (Values{10, 20}));
  EXPECT_EQ(Grad(w).ToVector<double>(), (Values{11, 22}));
}

TEST(HookTest, Refusals) {
  const Tensor x = Leaf({1, 2});
  EXPECT_THROW(RegisterHook(x, nullptr), Error);
  EXPECT_THROW(RegisterHook(Zeros({2}), [](const Tensor& g) { return g; }), Error);
  RegisterHook(x, [](const Tensor&) { return Zeros({3}); });
  try {
    Backward(Sum(x));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(error.message().find("float32[3]"), std::string::npos) << error.what();
    EXPECT_NE(error.message().find("float64[2]"), std::string::npos) << error.what();
  }
}

TEST(HookTest, WhatItThrowsReachesTheCaller) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = Mul(x, 2.0);
  RegisterHook(y, [](const Tensor&) -> Tensor { throw std::out_of_range("from the hook"); });
  EXPECT_THROW(Backward(Sum(y)), std::out_of_range);
  EXPECT_FALSE(Grad(x).defined());
  EXPECT_FALSE(InBackward());
  EXPECT_TRUE(GradEnabled());
}

// D-5: a parameter that is used twice is ready once, after its last contribution.
TEST(PostAccumulateHookTest, OnceHoweverOftenTheLeafIsUsed) {
  const Tensor w = Leaf({3}), x = FromVector<double>({2}, {1});
  std::vector<double> seen;
  RegisterPostAccumulateGradHook(w, [&](const Tensor& leaf) {
    EXPECT_TRUE(leaf.IsSame(w));
    seen.push_back(Grad(leaf).Item<double>());
  });
  for (int iteration = 1; iteration <= 2; ++iteration) {
    SetGrad(w, {});
    Backward(Sum(Mul(w, Mul(w, x))));
    EXPECT_EQ(seen.size(), static_cast<size_t>(iteration));
    EXPECT_EQ(seen.back(), 12);
  }
  Gradients({Sum(Mul(w, x))}, {w});
  EXPECT_EQ(seen.size(), 2u);
}

TEST(PostAccumulateHookTest, LaterLayersAreReadyFirst) {
  std::vector<Tensor> weights;
  std::vector<int> order;
  Tensor h = FromVector<double>({1, 2}, {2});
  for (int i = 0; i < 5; ++i) {
    weights.push_back(Leaf({1.5, 0.5}));
    RegisterPostAccumulateGradHook(weights[i], [&order, i](const Tensor&) { order.push_back(i); });
    h = Tanh(Mul(h, weights[i]));
  }
  Backward(Sum(h));
  EXPECT_EQ(order, (std::vector<int>{4, 3, 2, 1, 0}));
}

TEST(PostAccumulateHookTest, AlsoWhenNothingCameIn) {
  const Tensor x = Leaf({1, 2});
  int calls = 0;
  RegisterPostAccumulateGradHook(x, [&](const Tensor&) { ++calls; });
  Backward(Sum(Split(x, 1)[0]));
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(RegisterPostAccumulateGradHook(Mul(x, x), [](const Tensor&) {}), Error);
  EXPECT_THROW(RegisterPostAccumulateGradHook(Zeros({1}), [](const Tensor&) {}), Error);
  EXPECT_THROW(RegisterPostAccumulateGradHook(x, nullptr), Error);
}

TEST(PostAccumulateHookTest, OneOfARole) {
  const Tensor x = Leaf({1});
  int calls = 0;
  const auto count = [&](const Tensor&) { ++calls; };
  HookHandle first = RegisterPostAccumulateGradHook(x, count, "averaging");
  RegisterPostAccumulateGradHook(x, count, "counting");
  RegisterPostAccumulateGradHook(x, count);
  try {
    RegisterPostAccumulateGradHook(x, count, "averaging");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_NE(error.message().find("has a hook for averaging already"), std::string::npos);
  }
  first.Remove();
  RegisterPostAccumulateGradHook(x, count, "averaging");
  Backward(Sum(x));
  EXPECT_EQ(calls, 3);
}

// What a hook can know about leaves whose turn has not come.
TEST(BackwardReachesTest, ToldByTheGraphOfTheOutermostBackward) {
  const Tensor x = Leaf({1}), used = Leaf({2}), unused = Leaf({3});
  Values seen;
  const Tensor y = Mul(x, used), other = Sum(unused);
  RegisterHook(y, [&](const Tensor&) {
    for (const Tensor& leaf : {x, used, unused}) seen.push_back(BackwardReaches(leaf));
    Backward(other, {.retain_graph = true});
    seen.push_back(BackwardReaches(unused));
    return Tensor();
  });
  Backward(Sum(y), {.retain_graph = true});
  EXPECT_EQ(seen, (Values{1, 1, 0, 0}));
  seen.clear();
  Backward(Sum(y), {.inputs = {used}});
  EXPECT_EQ(seen, (Values{0, 1, 0, 0}));
  EXPECT_THROW(BackwardReaches(x), Error);
}

TEST(EndOfBackwardTest, RunsInOrderAfterEverythingElse) {
  const Tensor x = Leaf({1, 2}), y = Leaf({3, 4});
  std::vector<std::string> log;
  for (const Tensor& leaf : {x, y}) {
    RegisterPostAccumulateGradHook(leaf, [&](const Tensor&) {
      EXPECT_TRUE(InBackward());
      log.push_back("leaf");
      QueueEndOfBackward([&] {
        log.push_back("end");
        if (log.size() < 4) QueueEndOfBackward([&] { log.push_back("end of end"); });
      });
    });
  }
  Backward(Sum(Mul(x, y)));
  EXPECT_EQ(log, (std::vector<std::string>{"leaf", "leaf", "end", "end", "end of end"}));
  EXPECT_FALSE(InBackward());
}

TEST(EndOfBackwardTest, ABackwardInsideQueuesForTheOutermost) {
  const Tensor x = Leaf({1, 2}), inner = Leaf({3});
  std::vector<std::string> log;
  RegisterPostAccumulateGradHook(
      inner, [&](const Tensor&) { QueueEndOfBackward([&] { log.push_back("end"); }); });
  const Tensor y = Mul(x, 2.0);
  RegisterHook(y, [&](const Tensor&) {
    EnableGradScope record;
    Backward(Mul(inner, inner));
    log.push_back("inner done");
    return Tensor();
  });
  RegisterHook(x, [&](const Tensor&) {
    log.push_back("outer leaf");
    return Tensor();
  });
  Backward(Sum(y));
  EXPECT_EQ(log, (std::vector<std::string>{"inner done", "outer leaf", "end"}));
  EXPECT_EQ(Grad(inner).Item<double>(), 6);
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{2, 2}));
}

TEST(EndOfBackwardTest, NotAfterAnError) {
  const Tensor x = Leaf({1});
  bool ran = false;
  RegisterHook(x, [&](const Tensor&) -> Tensor {
    QueueEndOfBackward([&] { ran = true; });
    throw std::runtime_error("hook");
  });
  EXPECT_THROW(Backward(Sum(x)), std::runtime_error);
  EXPECT_FALSE(ran);
}

TEST(HookTest, RecordsOnlyWhenAGraphIsCreated) {
  const Tensor x = Leaf({1});
  bool enabled = true;
  RegisterHook(x, [&](const Tensor&) {
    enabled = GradEnabled();
    return Tensor();
  });
  Backward(Mul(x, x));
  EXPECT_FALSE(enabled);
  Backward(Mul(x, x), {.create_graph = true});
  EXPECT_TRUE(enabled);
  SetGrad(x, {});  // its history holds x
}

}  // namespace
}  // namespace lockstep::autograd
