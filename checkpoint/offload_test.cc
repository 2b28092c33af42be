// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/offload.h"

#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::checkpoint {
namespace {

using autograd::Backward;
using autograd::Grad;
using autograd::Gradients;
using autograd::SavedBytes;
using autograd::SetGrad;
using autograd::SetRequiresGrad;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

constexpr int64_t kRows = 128, kWidth = 64;
constexpr int64_t kUnit = kRows * kWidth * 4;

Tensor Leaf(const Shape& shape, double scale) {
  Floats values;
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(scale * static_cast<double>((i * 7 + 3) % 19 - 9)));
  }
  return SetRequiresGrad(FromVector<float>(values, shape), true);
}

// When no copy is under way, which would hold what a graph has dropped.
int64_t Current(Device device) {
  Stream::Copy(Cpu(0)).Synchronize();
  return GetMemoryStats(device).current_bytes;
}

struct Net {
  std::vector<Tensor> weights;
  Net() {
    for (int i = 0; i < 6; ++i) weights.push_back(Leaf({kWidth, kWidth}, 0.01 * (i + 1)));
  }
  Tensor operator()(const Tensor& x) const {
    Tensor h = x;
    for (const Tensor& w : weights) h = Dropout(Tanh(MatMul(h, w)), 0.1) + h;
    return h;
  }
};

std::vector<Floats> RunSteps(const Net& net, const std::optional<OffloadOptions>& options) {
  std::vector<Floats> result;
  ManualSeed(5);
  for (int step = 0; step < 3; ++step) {
    const Tensor x = Leaf({kRows, kWidth}, 0.02 * (step + 1));
    Tensor loss;
    {
      std::optional<OffloadActivations> offload;
      if (options.has_value()) offload.emplace(*options);
      loss = Sum(Mul(net(x), 0.5));
    }
    result.push_back(loss.ToVector<float>());
    for (const Tensor& g : Gradients({loss}, net.weights)) result.push_back(g.ToVector<float>());
  }
  return result;
}

TEST(OffloadActivationsTest, TheSameNumbersWithEveryOption) {
  const Net net;
  const std::vector<Floats> plain = RunSteps(net, std::nullopt);
  const OffloadOptions all[] = {{0, 2, 4},       {1000, 0, 1}, {1000, 1, 2},
                                {1000, 100, 50}, {0, 3, 1},    {1 << 30, 2, 4}};
  for (const OffloadOptions& options : all) EXPECT_EQ(RunSteps(net, options), plain);
}

// A scope around a training loop knows of the steps that are over no more.
TEST(OffloadActivationsTest, OneScopeAroundManySteps) {
  const Net net;
  const std::vector<Floats> plain = RunSteps(net, std::nullopt);
  const auto losses = [&](bool with_backward) {
    for (int step = 0; step < 3; ++step) {
      const Tensor loss = Sum(net(Leaf({kRows, kWidth}, 0.02)));
      if (with_backward) Backward(loss);
    }
  };
  const OffloadActivations offload({.min_bytes = 1000, .prefetch = 3});
  const int64_t host = Current(kHost);
  for (const bool with_backward : {true, false}) {
    losses(with_backward);
    EXPECT_EQ(Current(kHost), host);
    EXPECT_EQ(RunSteps(net, std::nullopt), plain);
  }
}

TEST(OffloadActivationsTest, BytesMoveToTheHostAndAreFreedAfterTheBackward) {
  const Net net;
  const Tensor x = Leaf({kRows, kWidth}, 0.02);
  const int64_t cpu = Current(Cpu(0)), host = Current(kHost);
  const int64_t saved = SavedBytes(Cpu(0)), saved_host = SavedBytes(kHost);
  int64_t plain_cpu = 0;
  {
    const Tensor loss = Sum(net(x));
    plain_cpu = Current(Cpu(0)) - cpu;
  }
  Tensor loss;
  int64_t moved = 0;
  {
    OffloadActivations offload({.min_bytes = 1000});
    loss = Sum(net(x));
    moved = offload.offloaded_bytes();
  }
  // The input of each product (the first is a leaf) and each Tanh's result.
  EXPECT_EQ(moved, 11 * kUnit);
  EXPECT_EQ(Current(kHost) - host, moved);
  EXPECT_EQ(SavedBytes(kHost) - saved_host, moved);
  EXPECT_EQ(SavedBytes(Cpu(0)), saved);
  EXPECT_LT(Current(Cpu(0)) - cpu, plain_cpu - 10 * kUnit);
  ResetPeakBytes(Cpu(0));
  Backward(loss);
  loss = Tensor();
  EXPECT_EQ(Current(kHost), host);
  EXPECT_EQ(SavedBytes(kHost), saved_host);
  for (const Tensor& w : net.weights) SetGrad(w, {});
  SetGrad(x, {});
  EXPECT_EQ(Current(Cpu(0)), cpu);
  // Not all of it was back at once.
  EXPECT_LT(GetMemoryStats(Cpu(0)).peak[MemoryCategory::kBackward], 9 * kUnit);
}

TEST(OffloadActivationsTest, ViewsOfOneStorageMoveOnce) {
  const Tensor x = Leaf({kRows, kWidth}, 0.02);
  const int64_t host = Current(kHost);
  std::vector<Tensor> plain;
  const auto run = [&] {
    const Tensor h = Mul(x, 2.0);
    const std::vector<Tensor> parts = Split(h, kWidth / 2, 1);
    return Sum(MatMul(Mul(parts[0], parts[1]), Transpose(Exp(parts[1]), 0, 1)));
  };
  const Floats expected = Gradients({run()}, {x})[0].ToVector<float>();
  Tensor y;
  {
    OffloadActivations offload({.min_bytes = 1});
    y = run();
    // h, and half as much each: the product, and Exp's result.
    EXPECT_EQ(offload.offloaded_bytes(), 2 * kUnit);
  }
  EXPECT_EQ(Current(kHost) - host, 2 * kUnit);
  EXPECT_EQ(Gradients({y}, {x})[0].ToVector<float>(), expected);
  EXPECT_EQ(Current(kHost), host);
}

TEST(OffloadActivationsTest, ParametersAndSmallOnesStay) {
  const Tensor w = Leaf({kWidth, kWidth}, 0.1);
  Tensor frozen;
  {
    CategoryScope category(MemoryCategory::kParameter);
    frozen = Ones({kRows, kWidth});
  }
  const int64_t before = SavedBytes(Cpu(0));
  OffloadActivations offload({.min_bytes = 100});
  const Tensor y = MatMul(frozen, w);
  EXPECT_EQ(offload.offloaded_bytes(), 0);
  const Tensor s = Exp(Sum(y, {0, 1}));  // 4 bytes
  EXPECT_EQ(offload.offloaded_bytes(), 0);
  EXPECT_EQ(SavedBytes(Cpu(0)) - before, kUnit + 4);
  Backward(s * 1e-9);
  EXPECT_EQ(SavedBytes(Cpu(0)), before);
}

TEST(OffloadActivationsTest, RetainedGraphsGiveTheMemoryBack) {
  const Net net;
  const Tensor x = Leaf({kRows, kWidth}, 0.02);
  Tensor loss;
  {
    OffloadActivations offload({.min_bytes = 1000});
    loss = Sum(net(x));
  }
  const int64_t cpu = Current(Cpu(0)), host = Current(kHost);
  const Floats first =
      Gradients({loss}, {net.weights[0]}, {.retain_graph = true})[0].ToVector<float>();
  EXPECT_EQ(Current(Cpu(0)), cpu);
  EXPECT_EQ(Current(kHost), host);
  Floats again;
  std::thread([&] { again = Gradients({loss}, {net.weights[0]})[0].ToVector<float>(); }).join();
  EXPECT_EQ(again, first);
}

TEST(OffloadActivationsTest, HigherOrderAndBackwardInsideTheScope) {
  const Tensor x = Leaf({kRows, kWidth}, 0.02);
  const auto run = [&] {
    const Tensor y = Sum(Exp(Mul(x, Tanh(x))));
    const Tensor g = Gradients({y}, {x}, {.create_graph = true})[0];
    return Gradients({Sum(Mul(g, g))}, {x})[0].ToVector<float>();
  };
  const Floats plain = run();
  OffloadActivations offload({.min_bytes = 0});
  EXPECT_EQ(run(), plain);
  EXPECT_GT(offload.offloaded_bytes(), 0);
}

TEST(OffloadActivationsTest, InputsOfCheckpointsMove) {
  const Net net;
  const Tensor x = Leaf({kRows, kWidth}, 0.02);
  const auto run = [&](bool checkpointed) {
    ManualSeed(6);
    Tensor h = Mul(x, 2.0);
    for (int i = 0; i < 3; ++i) {
      h = checkpointed ? Checkpoint([&](const Tensor& in) { return net(in); }, h) : net(h);
    }
    return Sum(h);
  };
  const Floats plain = Gradients({run(false)}, {x})[0].ToVector<float>();
  const int64_t host = Current(kHost), saved = SavedBytes(Cpu(0));
  Tensor loss;
  {
    OffloadActivations offload({.min_bytes = 1000});
    loss = run(true);
    EXPECT_EQ(offload.offloaded_bytes(), 3 * kUnit);
  }
  EXPECT_EQ(SavedBytes(Cpu(0)), saved);
  EXPECT_EQ(Gradients({loss}, {x})[0].ToVector<float>(), plain);
  EXPECT_EQ(Current(kHost), host);
  // Inside of a region: what its ops save moves, in both runs.
  ManualSeed(6);
  loss = Sum(Checkpoint(
      [&](const Tensor& in) {
        OffloadActivations offload({.min_bytes = 1000});
        Tensor h = Mul(in, 2.0);
        for (int i = 0; i < 3; ++i) h = net(h);
        return h;
      },
      x));
  EXPECT_EQ(Gradients({loss}, {x})[0].ToVector<float>(), plain);
  EXPECT_EQ(Current(kHost), host);
}

TEST(OffloadActivationsTest, ChangesInPlaceAreFound) {
  const Tensor x = Leaf({kRows, kWidth}, 0.02);
  for (const int64_t min_bytes : {int64_t{0}, int64_t{1} << 30}) {
    OffloadActivations offload({.min_bytes = min_bytes});
    const Tensor h = Mul(x, 2.0);
    const Tensor y = Sum(Mul(h, h));
    AddInPlace(h, h);
    const Error error = ErrorOf([&] { Backward(y); });
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), HasSubstr("OffloadActivations: a saved tensor (float32[128, 64]"));
  }
}

TEST(OffloadActivationsTest, AFullHostIsAnErrorOfTheOp) {
  const Tensor x = Leaf({kRows, kWidth}, 0.02);
  SetCapacityLimit(kHost, Current(kHost) + kUnit / 2);
  EXPECT_EQ(ErrorOf([&] {
              OffloadActivations offload({.min_bytes = 1000});
              Exp(Mul(x, 2.0));
            }).code(),
            absl::StatusCode::kResourceExhausted);
  SetCapacityLimit(kHost, std::nullopt);
  OffloadActivations offload({.min_bytes = 1000});
  Backward(Sum(Exp(Mul(x, 2.0))));
}

TEST(OffloadActivationsTest, BadOptions) {
  for (const OffloadOptions& options :
       {OffloadOptions{-1, 2, 4}, OffloadOptions{0, -1, 4}, OffloadOptions{0, 0, 0}}) {
    const Error error = ErrorOf([&] { OffloadActivations offload(options); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("max_in_flight"));
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
