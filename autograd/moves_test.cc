// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Tensors moved between devices inside of a graph: gradients of every layout come back, whole, once
// for each use, on the device of what was moved.

#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_check.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::autograd {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

// Distinct values that tell their place.
Tensor Leaf(const Shape& shape, Device device = Cpu(0)) {
  const Tensor values = Reshape(Arange(static_cast<double>(NumElements(shape))), shape);
  return SetRequiresGrad(To(values * 0.1 - 0.35, device), true);
}
Tensor Weights(const Tensor& like) {
  const TensorOptions options{.dtype = like.dtype(), .device = like.device()};
  return Reshape(Arange(static_cast<double>(like.numel()), options) * 0.37 + 0.1, like.shape());
}

// Views of [4, 6], as the moves meet them.
const std::vector<std::pair<std::string, Function>>& Views() {
  static const auto& views = *new std::vector<std::pair<std::string, Function>>{
      {"itself", [](const Tensor& x) { return x; }},
      {"transposed", [](const Tensor& x) { return Transpose(x, 0, 1); }},
      {"sliced", [](const Tensor& x) { return Slice(x, 1, 1, 6, 2); }},
      {"row", [](const Tensor& x) { return Select(x, 0, 2); }},
      {"expanded",
       [](const Tensor& x) {
         return Expand(Unsqueeze(x, 1), {4, 3, 6});
       }},
      {"one element", [](const Tensor& x) { return Select(Select(x, 0, 1), 0, 2); }},
      {"empty", [](const Tensor& x) { return Slice(x, 0, 2, 2); }}};
  return views;
}

// The gradient of sum(w * f(x)) for a graph that crosses to cpu:1, and for one that does not.
TEST(MovesTest, GradientsOfViewsAreThoseWithoutTheMove) {
  for (const auto& [name, view] : Views()) {
    const Tensor x = Leaf({4, 6}), y = Leaf({4, 6});
    const Tensor moved = Exp(To(view(x), Cpu(1)));
    EXPECT_EQ(moved.device(), Cpu(1));
    EXPECT_TRUE(moved.is_contiguous());
    Backward(Sum(Mul(moved, Weights(moved))));
    const Tensor stayed = Exp(view(y));
    Backward(Sum(Mul(stayed, Weights(stayed))));
    EXPECT_EQ(Grad(x).device(), Cpu(0)) << name;
    EXPECT_EQ(Grad(x).ToVector<float>(), Grad(y).ToVector<float>()) << name;
  }
}

TEST(MovesTest, GradientsOfViewsOfMovedTensorsAreThoseWithoutTheMove) {
  for (const auto& [name, view] : Views()) {
    const Tensor x = Leaf({4, 6}), y = Leaf({4, 6});
    const Tensor moved = view(To(x, Cpu(1)));
    Backward(Sum(Mul(Exp(moved), Weights(moved))));
    const Tensor stayed = view(y);
    Backward(Sum(Mul(Exp(stayed), Weights(stayed))));
    EXPECT_EQ(Grad(x).device(), Cpu(0)) << name;
    EXPECT_EQ(Grad(x).ToVector<float>(), Grad(y).ToVector<float>()) << name;
  }
}

TEST(MovesTest, EachUseCountsOnce) {
  const Tensor x = Leaf({3});
  // Moved twice, one of them used twice, and used where it is; cpu:2 gets it from cpu:1.
  const Tensor a = To(x, Cpu(1)), b = To(x, Cpu(1)), c = To(a, Cpu(2));
  EXPECT_FALSE(a.IsSame(b));
  EXPECT_TRUE(To(a, Cpu(1)).IsSame(a));
  const Tensor on_one = Add(Mul(a, 2.0), Add(a, Mul(b, 10.0)));
  Backward(Sum(Add(To(on_one, Cpu(0)), Add(To(Mul(c, 100.0), Cpu(0)), Mul(x, 1000.0)))));
  EXPECT_EQ(Grad(x).ToVector<double>(), std::vector<double>(3, 1113.0));
}

TEST(MovesTest, AWriteToTheCopyLeavesTheOriginalAndIsDifferentiated) {
  const Tensor x = Leaf({3});
  const Tensor moved = To(x, Cpu(1));
  MulInPlace(moved, 3.0);
  Backward(Sum(Mul(moved, moved)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FLOAT_EQ(Grad(x).Item<float>({i}), 18 * x.Item<float>({i}));
    EXPECT_FLOAT_EQ(x.Item<float>({i}), 0.1f * i - 0.35f);
  }
}

TEST(MovesTest, ParametersOnSeveralDevicesHaveGradientsThere) {
  std::vector<Tensor> weights;
  for (int device = 0; device < 5; ++device) weights.push_back(Leaf({4, 4}, Cpu(device)));
  const auto forward = [&](bool spread) {
    Tensor x = Leaf({2, 4});
    for (const Tensor& weight : weights) {
      const Device device = spread ? weight.device() : Cpu(0);
      x = Tanh(MatMul(To(x, device), To(weight, device)));
    }
    return Sum(x);
  };
  Backward(forward(true));
  std::vector<std::vector<float>> spread;
  for (const Tensor& weight : weights) {
    EXPECT_EQ(Grad(weight).device(), weight.device());
    spread.push_back(Grad(weight).ToVector<float>());
    SetGrad(weight, Tensor());
  }
  Backward(forward(false));
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(Grad(weights[i]).device(), weights[i].device());
    EXPECT_EQ(Grad(weights[i]).ToVector<float>(), spread[i]) << i;
  }
}

TEST(MovesTest, MatchesDifferencesTwice) {
  const auto leaf = [](const Shape& shape) {
    return SetRequiresGrad(To(Detach(Leaf(shape)), DType::kFloat64), true);
  };
  const auto crossing = [](TensorSpan in) {
    const Tensor there = To(Mul(in[0], in[1]), Cpu(1));
    return std::vector<Tensor>{To(Mul(Exp(there), To(in[1], Cpu(1))), Cpu(0))};
  };
  const std::vector<Tensor> inputs = {leaf({2, 3}), leaf({3})};
  const GradCheckResult result = GradCheck(crossing, inputs, {.second_order = true});
  EXPECT_TRUE(result.ok) << result.message;
}

TEST(MovesTest, TheGradientOfAGradientCrossesBack) {
  const Tensor x = Leaf({3});
  const Tensor y = To(x, Cpu(1));
  const Tensor first = Gradients({Sum(Mul(Mul(y, y), y))}, {x}, {.create_graph = true})[0];
  EXPECT_EQ(first.device(), Cpu(0));
  Backward(Sum(first));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FLOAT_EQ(Grad(x).Item<float>({i}), 6 * x.Item<float>({i}));
  }
}

TEST(MovesTest, NothingIsRecordedWhereNothingIsWanted) {
  const Tensor x = Leaf({3});
  {
    NoGradScope no_grad;
    EXPECT_FALSE(RequiresGrad(To(x, Cpu(1))));
  }
  EXPECT_FALSE(RequiresGrad(To(Detach(x), Cpu(1))));
  EXPECT_FALSE(RequiresGrad(To(Arange(3.0), Cpu(1))));
  EXPECT_TRUE(RequiresGrad(To(x, Cpu(1))));
  EXPECT_FALSE(IsLeaf(To(x, Cpu(1))));
  // A move saves nothing for its gradient.
  const int64_t before = SavedBytes();
  const Tensor moved = To(x, Cpu(1));
  EXPECT_EQ(SavedBytes(), before);
}

TEST(MovesTest, EachDeviceHasItsThreadInBackward) {
  const Tensor x = Leaf({3});
  std::mutex mutex;
  std::set<std::thread::id> threads[3];
  std::vector<HookHandle> handles;
  Tensor y = Mul(x, 1.0);
  for (const int device : {0, 1, 2, 1, 0}) {
    y = Mul(To(y, Cpu(device)), 2.0);
    handles.push_back(RegisterHook(y, [&, device](const Tensor& gradient) {
      EXPECT_EQ(gradient.device(), Cpu(device));
      EXPECT_EQ(CurrentDevice(), Cpu(0));  // that of the forward pass
      const std::lock_guard<std::mutex> lock(mutex);
      threads[device].insert(std::this_thread::get_id());
      return Tensor();
    }));
  }
  Backward(Sum(y));
  std::set<std::thread::id> all;
  for (const auto& of_device : threads) {
    EXPECT_EQ(of_device.size(), 1u);
    all.insert(of_device.begin(), of_device.end());
  }
  EXPECT_EQ(all.size(), 3u);
  EXPECT_EQ(Grad(x).ToVector<double>(), std::vector<double>(3, 32.0));
}

TEST(MovesTest, AnErrorOnAnotherDevicesThreadComesToTheCaller) {
  const Tensor x = Leaf({3});
  const Tensor y = Mul(To(x, Cpu(1)), 2.0);
  RegisterHook(y, [](const Tensor&) -> Tensor { throw DataLossError("of the hook"); });
  const Tensor loss = Sum(To(Exp(y), Cpu(2)));
  const Error error = ErrorOf([&] { Backward(loss); });
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(error.message(), "of the hook")) << error.message();
  // The next one is as good as the first.
  Backward(Sum(To(x, Cpu(1))));
  EXPECT_EQ(Grad(x).ToVector<double>(), std::vector<double>(3, 1.0));
}

TEST(MovesTest, AFullDeviceIsNamedAndLeavesTheGraph) {
  const Tensor x = Leaf({1000});
  SetCapacityLimit(Cpu(3), 100);
  const Error error = ErrorOf([&] { To(x, Cpu(3)); });
  SetCapacityLimit(Cpu(3), std::nullopt);
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(error.message(), "cpu:3")) << error.message();
  Backward(Sum(To(x, Cpu(3))));
  EXPECT_EQ(Grad(x).Item<float>({999}), 1);
}

TEST(MovesTest, IntegersMoveAndHaveNoGradient) {
  const Tensor x = Leaf({3});
  const Tensor index = To(FromVector<int64_t>({2, 0, 0}, {3}), Cpu(1));
  EXPECT_EQ(index.dtype(), DType::kInt64);
  EXPECT_FALSE(RequiresGrad(index));
  Backward(Sum(IndexSelect(To(x, Cpu(1)), 0, index)));
  EXPECT_EQ(Grad(x).ToVector<double>(), (std::vector<double>{2, 0, 1}));
}

}  // namespace
}  // namespace lockstep::autograd
