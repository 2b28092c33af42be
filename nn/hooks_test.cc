// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/losses.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::nn {
namespace {

using ::testing::ElementsAre;

// y = 3 x.
class Triple : public UnaryModule {
 public:
  Tensor Forward(const Tensor& x) override {
    ++calls;
    return x * Scalar(3);
  }
  int calls = 0;
};

Tensor Leaf(std::vector<float> values) {
  const auto count = static_cast<int64_t>(values.size());
  return autograd::SetRequiresGrad(FromVector<float>(values, {count}), true);
}

TEST(ForwardWrapper, StandsBetweenTheHooksAndForward) {
  Triple module;
  std::vector<std::string> order;
  module.RegisterForwardPreHook([&](Module&, TensorList&) { order.push_back("before"); });
  module.RegisterForwardHook([&](Module&, TensorSpan, TensorList&) { order.push_back("after"); });
  ForwardFunction again;
  EXPECT_FALSE(module.has_forward_wrapper());
  module.SetForwardWrapper([&](Module& m, TensorSpan inputs, const ForwardFunction& forward) {
    EXPECT_EQ(&m, &module);
    order.push_back("wrapper");
    again = forward;
    forward(inputs);
    return TensorList{forward(inputs)[0] + Scalar(1)};
  });
  EXPECT_TRUE(module.has_forward_wrapper());
  EXPECT_EQ(module(FromVector<float>({2}, {1})).Item<float>(), 7);
  EXPECT_THAT(order, ElementsAre("before", "wrapper", "after"));
  EXPECT_EQ(module.calls, 2);
  // The function works after the call; Forward() itself has no wrapper.
  EXPECT_EQ(again(TensorList{FromVector<float>({5}, {1})})[0].Item<float>(), 15);
  EXPECT_EQ(module.Forward(FromVector<float>({2}, {1})).Item<float>(), 6);
  EXPECT_EQ(order.size(), 3u);
}

TEST(ForwardWrapper, OneAModule) {
  Triple module;
  module.SetForwardWrapper(nullptr);  // there is none
  const ForwardWrapper wrapper = [](Module&, TensorSpan inputs, const ForwardFunction& forward) {
    return forward(inputs);
  };
  module.SetForwardWrapper(wrapper);
  try {
    module.SetForwardWrapper(wrapper);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kAlreadyExists);
  }
  module.SetForwardWrapper(nullptr);
  EXPECT_FALSE(module.has_forward_wrapper());
  module.SetForwardWrapper(wrapper);
  CrossEntropyLoss loss;
  loss.SetForwardWrapper([](Module&, TensorSpan inputs, const ForwardFunction& forward) {
    return TensorList{forward(inputs)[0] * Scalar(2)};
  });
  CrossEntropyLoss plain;
  const Tensor logits = FromVector<float>({1, 2, 3, 0}, {2, 2});
  const Tensor target = FromVector<int64_t>({0, 1}, {2});
  EXPECT_EQ(loss(logits, target).Item<float>(), 2 * plain(logits, target).Item<float>());
}

TEST(ForwardHooks, RunInOrderAndReplace) {
  Triple module;
  std::vector<std::string> order;
  module.RegisterForwardPreHook([&](Module& m, TensorList& inputs) {
    EXPECT_EQ(&m, &module);
    order.push_back("pre1");
    inputs[0] = inputs[0] + Scalar(1);
  });
  module.RegisterForwardPreHook([&](Module&, TensorList& inputs) {
    order.push_back("pre2");
    EXPECT_EQ(inputs[0].Item<float>({0}), 3);
  });
  module.RegisterForwardHook([&](Module&, TensorSpan inputs, TensorList& outputs) {
    order.push_back("post");
    EXPECT_EQ(inputs[0].Item<float>({0}), 3);
    outputs[0] = outputs[0] * Scalar(10);
  });
  const Tensor y = module(FromVector<float>({2}, {1}));
  EXPECT_EQ(y.Item<float>(), 90);
  EXPECT_THAT(order, ElementsAre("pre1", "pre2", "post"));
  // Forward() alone runs none.
  EXPECT_EQ(module.Forward(FromVector<float>({2}, {1})).Item<float>(), 6);
  EXPECT_EQ(order.size(), 3u);
}

TEST(ForwardHooks, ExitHooksRunHoweverThePassEnds) {
  Triple module;
  std::vector<std::string> order;
  bool pre_throws = false, post_throws = false;
  module.RegisterForwardPreHook([&](Module&, TensorList&) {
    if (pre_throws) throw std::runtime_error("pre");
  });
  HookHandle handle = module.RegisterForwardExitHook([&](Module& m) {
    EXPECT_EQ(&m, &module);
    order.push_back("exit");
  });
  module.RegisterForwardHook([&](Module&, TensorSpan, TensorList&) {
    order.push_back("post");
    if (post_throws) throw std::runtime_error("post");
  });
  const Tensor x = FromVector<float>({2}, {1});
  module(x);
  EXPECT_THAT(order, ElementsAre("post", "exit"));
  pre_throws = true;
  EXPECT_THROW(module(x), std::runtime_error);
  EXPECT_THAT(order, ElementsAre("post", "exit", "exit"));
  pre_throws = false;
  post_throws = true;
  EXPECT_THROW(module(x), std::runtime_error);
  EXPECT_THAT(order, ElementsAre("post", "exit", "exit", "post", "exit"));
  EXPECT_THROW(module(Tensor()), Error);
  EXPECT_EQ(order.size(), 6u);
  handle.Remove();
  EXPECT_THROW(module(Tensor()), Error);
  EXPECT_EQ(order.size(), 6u);
}

TEST(ForwardHooks, CanBeRemovedAlsoByThemselves) {
  Triple module;
  int first = 0, second = 0;
  HookHandle handle = module.RegisterForwardPreHook([&](Module&, TensorList&) { ++first; });
  HookHandle self;
  self = module.RegisterForwardPreHook([&](Module&, TensorList&) {
    ++second;
    self.Remove();
  });
  const Tensor x = FromVector<float>({2}, {1});
  module(x);
  handle.Remove();
  handle.Remove();
  module(x);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
}

TEST(ForwardHooks, HandleOutlivesTheModule) {
  HookHandle handle;
  {
    Triple module;
    handle = module.RegisterForwardPreHook([](Module&, TensorList&) {});
  }
  handle.Remove();
}

TEST(ForwardHooks, RunForModulesWithSeveralInputs) {
  MseLoss loss;
  loss.RegisterForwardPreHook([](Module&, TensorList& inputs) {
    ASSERT_EQ(inputs.size(), 2u);
    inputs[1] = inputs[1] * Scalar(0);
  });
  const Tensor x = FromVector<float>({3, 4}, {2});
  EXPECT_FLOAT_EQ(loss(x, x).Item<float>(), 12.5f);
}

TEST(BackwardHooks, SeeGradientsOfThisCallOnly) {
  Triple module;
  std::vector<float> grad_in, grad_out;
  module.RegisterBackwardHook([&](Module& m, TensorList& inputs, TensorSpan outputs) {
    EXPECT_EQ(&m, &module);
    grad_in = inputs[0].ToVector<float>();
    grad_out = outputs[0].ToVector<float>();
  });
  const Tensor x = Leaf({1, 2, 3});
  // x is used beside the module too: that part is not the module's.
  autograd::Backward(Sum(module(x) * FromVector<float>({1, 10, 100}, {3}) + x));
  EXPECT_THAT(grad_out, ElementsAre(1, 10, 100));
  EXPECT_THAT(grad_in, ElementsAre(3, 30, 300));
  EXPECT_THAT(autograd::Grad(x).ToVector<float>(), ElementsAre(4, 31, 301));
}

TEST(BackwardHooks, MayReplaceGradients) {
  Triple module;
  module.RegisterBackwardPreHook(
      [](Module&, TensorList& outputs) { outputs[0] = outputs[0] * Scalar(2); });
  module.RegisterBackwardHook(
      [](Module&, TensorList& inputs, TensorSpan) { inputs[0] = inputs[0] + Scalar(1); });
  const Tensor x = Leaf({1, 2});
  autograd::Backward(Sum(module(x)));
  EXPECT_THAT(autograd::Grad(x).ToVector<float>(), ElementsAre(7, 7));
}

TEST(BackwardHooks, PreHookRunsBeforeTheModulesGradients) {
  Linear module(2, 2);
  bool before = false, after = false;
  module.RegisterBackwardPreHook(
      [&](Module&, TensorList&) { before = !autograd::Grad(module.weight).defined(); });
  module.RegisterBackwardHook([&](Module&, TensorList& inputs, TensorSpan outputs) {
    after = true;
    EXPECT_FALSE(inputs[0].defined());
    EXPECT_TRUE(outputs[0].defined());
  });
  // The input needs no gradient: the hook runs all the same.
  autograd::Backward(Sum(module(FromVector<float>({1, 2}, {1, 2}))));
  EXPECT_TRUE(before);
  EXPECT_TRUE(after);
  EXPECT_TRUE(autograd::Grad(module.weight).defined());
}

TEST(BackwardHooks, RunOncePerBackward) {
  Triple module;
  int runs = 0;
  module.RegisterBackwardHook([&](Module&, TensorList&, TensorSpan) { ++runs; });
  const Tensor x = Leaf({1});
  const Tensor y = module(module(x));
  autograd::Backward(Sum(y), {.retain_graph = true});
  EXPECT_EQ(runs, 2);
  autograd::Backward(Sum(y));
  EXPECT_EQ(runs, 4);
  EXPECT_FLOAT_EQ(autograd::Grad(x).Item<float>(), 18);
  autograd::NoGradScope no_grad;
  module(x);
  EXPECT_EQ(runs, 4);
}

TEST(BackwardHooks, StopWhenTheModuleIsGone) {
  int runs = 0;
  const Tensor x = Leaf({1, 2});
  Tensor y;
  {
    Triple module;
    module.RegisterBackwardHook([&](Module&, TensorList&, TensorSpan) { ++runs; });
    y = module(x);
  }
  autograd::Backward(Sum(y));
  EXPECT_EQ(runs, 0);
  EXPECT_THAT(autograd::Grad(x).ToVector<float>(), ElementsAre(3, 3));
}

TEST(BackwardHooks, ErrorsLeaveBackward) {
  Triple module;
  module.RegisterBackwardHook([](Module&, TensorList&, TensorSpan) { throw AbortedError("hook"); });
  const Tensor y = module(Leaf({1}));
  EXPECT_THROW(autograd::Backward(Sum(y)), Error);
}

}  // namespace
}  // namespace lockstep::nn
