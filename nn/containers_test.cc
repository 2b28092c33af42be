// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/containers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/linear.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Stand-ins with the parameters and buffers of PyTorch's modules.
class Conv2d : public UnaryModule {
 public:
  Conv2d(int64_t in, int64_t out, int64_t kernel) {
    RegisterParameter("weight", &weight, Zeros({out, in, kernel, kernel}));
    RegisterParameter("bias", &bias, Tensor());
  }
  Tensor Forward(const Tensor& x) override { return x; }
  Tensor weight, bias;
};

class BatchNorm : public UnaryModule {
 public:
  explicit BatchNorm(int64_t channels) {
    RegisterParameter("weight", &weight, Ones({channels}));
    RegisterParameter("bias", &bias, Zeros({channels}));
    RegisterBuffer("running_mean", &running_mean, Zeros({channels}));
    RegisterBuffer("running_var", &running_var, Ones({channels}));
    RegisterBuffer("num_batches_tracked", &num_batches_tracked,
                   Zeros(Shape{}, {.dtype = DType::kInt64, .device = {}}));
  }
  Tensor Forward(const Tensor& x) override { return x; }
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};

std::shared_ptr<Sequential> Nested() {
  auto inner = std::make_shared<Sequential>();
  inner->Emplace<Conv2d>(3, 32, 3);
  inner->Emplace<BatchNorm>(32);
  inner->Emplace<Relu>();
  return std::make_shared<Sequential>(std::vector<std::shared_ptr<UnaryModule>>{inner});
}

// https://github.com/pytorch/pytorch/issues/36577: nested Sequential names differ between Python
// and C++, so that weights do not travel.
TEST(Sequential, Issue36577NestedNamesAreThoseOfPython) {
  const NamedTensors state = Nested()->StateDict();
  EXPECT_THAT(state.Names(), ElementsAre("0.0.weight", "0.1.weight", "0.1.bias", "0.1.running_mean",
                                         "0.1.running_var", "0.1.num_batches_tracked"));
  EXPECT_EQ(state.At("0.0.weight").shape(), (Shape{32, 3, 3, 3}));
  EXPECT_EQ(state.At("0.1.running_var").shape(), (Shape{32}));
  EXPECT_EQ(state.At("0.1.num_batches_tracked").shape(), Shape{});

  NamedTensors renamed;
  for (const auto& [name, tensor] : state) {
    renamed.Insert(name == "0.1.bias" ? "0.1.beta" : name, tensor + Scalar(1));
  }
  auto target = Nested();
  try {
    target->LoadStateDict(renamed);
    FAIL() << "loaded";
  } catch (const Error& e) {
    EXPECT_THAT(e.message(), HasSubstr("0.1.bias"));
    EXPECT_THAT(e.message(), HasSubstr("0.1.beta"));
  }
  for (const auto& [name, tensor] : target->StateDict()) {
    EXPECT_EQ(tensor.ToVector<float>(), state.At(name).ToVector<float>()) << name;
  }
}

TEST(Sequential, RunsInOrder) {
  Sequential net;
  const Tensor x = FromVector<float>({-1, 2}, {1, 2});
  EXPECT_TRUE(net(x).IsSame(x));
  auto linear = net.Emplace<Linear>(2, 2);
  net.Append(std::make_shared<Relu>());
  linear->LoadStateDict({{"weight", FromVector<float>({1, 0, 0, -1}, {2, 2})},
                         {"bias", FromVector<float>({3, 1}, {2})}});
  EXPECT_THAT(net(x).ToVector<float>(), ElementsAre(2, 0));
  EXPECT_EQ(net.size(), 2u);
  EXPECT_EQ(net[0], linear);
  EXPECT_THROW(net[2], Error);
  EXPECT_THROW(net.Append(nullptr), Error);
  EXPECT_EQ(net.size(), 2u);
}

TEST(ModuleList, IsTypedAndNamedByPosition) {
  ModuleList<Linear> list;
  list.Emplace(2, 3);
  list.Emplace(3, 5);
  EXPECT_THAT(list.StateDict().Names(), ElementsAre("0.weight", "0.bias", "1.weight", "1.bias"));
  Tensor x = Ones({1, 2});
  for (const auto& linear : list) x = (*linear)(x);
  EXPECT_EQ(x.shape(), (Shape{1, 5}));
  EXPECT_EQ(list[1]->weight.size(0), 5);
  EXPECT_THROW(list[2], Error);
  ModuleList<> any;
  any.Append(std::make_shared<Relu>());
  EXPECT_EQ(any.size(), 1u);
}

}  // namespace
}  // namespace lockstep::nn
