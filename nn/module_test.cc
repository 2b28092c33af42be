// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two parameters, two buffers and children, registered out of the order of the state dictionary.
class Mixed : public UnaryModule {
 public:
  Mixed() : inner_(RegisterModule("inner", std::make_shared<Linear>(3, 3))) {
    RegisterBuffer("mean", &mean, FromVector<float>({1, 2, 3}, {3}));
    RegisterParameter("scale", &scale, FromVector<float>({2, 3, 5}, {3}));
    RegisterBuffer("scratch", &scratch, FromVector<float>({7}, {1}), /*persistent=*/false);
    RegisterBuffer("count", &count, FromVector<int64_t>({4}, {}));
    RegisterParameter("absent", &absent, Tensor());
  }
  Tensor Forward(const Tensor& x) override { return (*inner_)(x * scale + mean); }
  std::string Description() const override { return "Mixed"; }

  Tensor mean, scale, scratch, count, absent;
  std::shared_ptr<Linear> inner_;
};

class Tied : public Module {
 public:
  Tied()
      : first(RegisterModule("first", std::make_shared<Linear>(3, 3))),
        second(RegisterModule("second",
                              std::make_shared<Linear>(
                                  3, 3, LinearOptions{.bias = false, .weight = first->weight}))) {}
  std::shared_ptr<Linear> first, second;
};

// Exposes registration.
class Bare : public Module {
 public:
  using Module::RegisterBuffer;
  using Module::RegisterModule;
  using Module::RegisterParameter;
  Tensor a, b;
};

TEST(Module, NamesAndOrderArePyTorchs) {
  Mixed module;
  EXPECT_THAT(module.StateDict().Names(),
              ElementsAre("scale", "mean", "count", "inner.weight", "inner.bias"));
  EXPECT_THAT(module.NamedParameters().Names(), ElementsAre("scale", "inner.weight", "inner.bias"));
  EXPECT_THAT(module.NamedBuffers().Names(), ElementsAre("mean", "scratch", "count"));
  EXPECT_EQ(module.ParameterCount(), 3 + 9 + 3);
  EXPECT_TRUE(autograd::RequiresGrad(module.scale));
  EXPECT_FALSE(autograd::RequiresGrad(module.mean));
}

TEST(Module, SharedParametersAreListedOnceAndKeptUnderBothNames) {
  Tied module;
  EXPECT_THAT(module.NamedParameters().Names(), ElementsAre("first.weight", "first.bias"));
  EXPECT_THAT(module.StateDict().Names(),
              ElementsAre("first.weight", "first.bias", "second.weight"));
  // Assigning ties too.
  Linear other(3, 3);
  module.second->weight = other.weight;
  EXPECT_THAT(module.NamedParameters().Names(),
              ElementsAre("first.weight", "first.bias", "second.weight"));
}

TEST(Module, SharedModulesAppearOnce) {
  Sequential net;
  auto linear = net.Emplace<Linear>(3, 3);
  net.Append(linear);
  std::vector<std::string> names;
  for (const auto& [name, module] : net.NamedModules()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("", "0"));
  EXPECT_THAT(net.StateDict().Names(), ElementsAre("0.weight", "0.bias", "1.weight", "1.bias"));
  int calls = 0;
  net.Apply([&](Module&) { ++calls; });
  EXPECT_EQ(calls, 2);
}

TEST(Module, ApplyVisitsChildrenFirst) {
  Mixed module;
  std::vector<std::string> seen;
  module.Apply([&](Module& m) { seen.push_back(m.Description()); });
  EXPECT_THAT(seen, ElementsAre("Linear(3, 3)", "Mixed"));
}

TEST(Module, RefusesBadRegistrations) {
  Bare module;
  const Tensor value = FromVector<float>({1}, {1});
  module.RegisterParameter("a", &module.a, value);
  EXPECT_THAT(MessageOf([&] { module.RegisterParameter("a", &module.b, value); }),
              HasSubstr("already has a \"a\""));
  EXPECT_THAT(MessageOf([&] { module.RegisterModule("a", std::make_shared<Bare>()); }),
              HasSubstr("already has a \"a\""));
  EXPECT_THAT(MessageOf([&] { module.RegisterBuffer("b.c", &module.b, value); }),
              HasSubstr("\"b.c\" cannot be a name"));
  EXPECT_THAT(MessageOf([&] { module.RegisterBuffer("", &module.b, value); }),
              HasSubstr("cannot be a name"));
  EXPECT_THAT(MessageOf([&] { module.RegisterModule("c", std::shared_ptr<Bare>()); }),
              HasSubstr("null"));
  EXPECT_THAT(
      MessageOf([&] { module.RegisterParameter("b", &module.b, FromVector<int64_t>({1}, {1})); }),
      HasSubstr("floating point"));
  EXPECT_FALSE(module.b.defined());
}

TEST(Module, StateDictSharesStorageOutsideTheGraph) {
  Mixed module;
  const NamedTensors state = module.StateDict();
  EXPECT_FALSE(autograd::RequiresGrad(state.At("scale")));
  EXPECT_EQ(state.At("scale").storage(), module.scale.storage());
}

TEST(Module, LoadCopiesValuesAndKeepsIdentity) {
  ManualSeed(1);
  Mixed source;
  source.mean = FromVector<float>({-1, -2, -3}, {3});
  ManualSeed(2);
  Mixed target;
  const Tensor scale = target.scale;
  const Tensor weight = target.inner_->weight;
  const LoadResult result = target.LoadStateDict(source.StateDict());
  EXPECT_TRUE(result.missing.empty());
  EXPECT_TRUE(result.unexpected.empty());
  EXPECT_TRUE(target.scale.IsSame(scale));
  EXPECT_TRUE(target.inner_->weight.IsSame(weight));
  EXPECT_TRUE(autograd::RequiresGrad(weight));
  EXPECT_EQ(weight.ToVector<float>(), source.inner_->weight.ToVector<float>());
  EXPECT_NE(weight.storage(), source.inner_->weight.storage());
  EXPECT_THAT(target.mean.ToVector<float>(), ElementsAre(-1, -2, -3));
}

// The state of a module with one name changed (field report: weights that do not travel).
TEST(Module, StrictLoadListsEveryBadNameAndChangesNothing) {
  ManualSeed(1);
  Mixed source;
  NamedTensors state;
  for (const auto& [name, tensor] : source.StateDict()) {
    state.Insert(name == "inner.weight" ? "inner.kernel" : name, tensor * Scalar(2));
  }
  state.Set("scale", FromVector<float>({1, 2}, {2}));
  state.Set("mean", FromVector<int64_t>({1, 2, 3}, {3}));
  ManualSeed(2);
  Mixed target;
  std::vector<std::vector<double>> before;
  for (const auto& [name, tensor] : target.StateDict()) before.push_back(tensor.ToVector<double>());
  const std::string message = MessageOf([&] { target.LoadStateDict(state); });
  EXPECT_THAT(message, HasSubstr("1 missing:\n    inner.weight"));
  EXPECT_THAT(message, HasSubstr("1 unexpected:\n    inner.kernel"));
  EXPECT_THAT(message, HasSubstr("scale has shape [2] instead of [3]"));
  EXPECT_THAT(message, HasSubstr("mean is int64, which does not convert to float32"));
  std::vector<std::vector<double>> after;
  for (const auto& [name, tensor] : target.StateDict()) after.push_back(tensor.ToVector<double>());
  EXPECT_EQ(before, after);
}

TEST(Module, NonStrictLoadTakesWhatFits) {
  Mixed target;
  NamedTensors state{{"scale", FromVector<float>({7, 8, 9}, {3})},
                     {"other", FromVector<float>({1}, {1})}};
  const LoadResult result = target.LoadStateDict(state, {.strict = false});
  EXPECT_THAT(result.missing, ElementsAre("mean", "count", "inner.weight", "inner.bias"));
  EXPECT_THAT(result.unexpected, ElementsAre("other"));
  EXPECT_THAT(target.scale.ToVector<float>(), ElementsAre(7, 8, 9));
  // A tensor that does not fit is an error all the same.
  state.Set("scale", FromVector<float>({1}, {1}));
  EXPECT_THAT(MessageOf([&] { target.LoadStateDict(state, {.strict = false}); }),
              HasSubstr("scale has shape [1]"));
}

TEST(Module, LoadConvertsDTypesAndDevices) {
  Mixed target;
  target.To(DType::kFloat64);
  NamedTensors state;
  for (const auto& [name, tensor] : target.StateDict()) {
    state.Insert(name, lockstep::To(FullLike(tensor, 3), Cpu(1)));
  }
  state.Set("scale", lockstep::To(FromVector<float>({0.5f, 1.5f, 2.5f}, {3}), DType::kBFloat16));
  target.LoadStateDict(state);
  EXPECT_EQ(target.scale.dtype(), DType::kFloat64);
  EXPECT_EQ(target.scale.device(), Cpu(0));
  EXPECT_THAT(target.scale.ToVector<double>(), ElementsAre(0.5, 1.5, 2.5));
  EXPECT_EQ(target.count.Item<int64_t>(), 3);
}

TEST(Module, LoadRefusesTwoValuesForOneTensor) {
  Tied target;
  NamedTensors state = target.StateDict();
  state.Set("second.weight", FullLike(target.first->weight, 1));
  EXPECT_THAT(MessageOf([&] { target.LoadStateDict(state); }),
              HasSubstr("second.weight and first.weight are one tensor here"));
  state.Set("first.weight", FullLike(target.first->weight, 1));
  target.LoadStateDict(state);
  EXPECT_EQ(target.second->weight.Item<float>({2, 2}), 1);
}

TEST(Module, MetaModulesHaveNamesButNoValues) {
  DeviceScope scope(kMeta);
  Linear module(3, 5);
  EXPECT_EQ(module.weight.device(), kMeta);
  NamedTensors state = module.StateDict();
  DeviceScope cpu(Cpu(0));
  Linear other(3, 5);
  EXPECT_THAT(MessageOf([&] { other.LoadStateDict(state); }), HasSubstr("meta device"));
  EXPECT_THAT(MessageOf([&] { module.LoadStateDict(other.StateDict()); }),
              HasSubstr("meta device"));
}

TEST(Module, ToKeepsIdentityAndMovesGradients) {
  Mixed module;
  const Tensor x = FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  autograd::Backward(Sum(module(x)));
  const Tensor scale = module.scale;
  const std::vector<float> values = scale.ToVector<float>();
  const std::vector<float> gradient = autograd::Grad(scale).ToVector<float>();
  const int64_t parameters_before = GetMemoryStats(Cpu(1)).current[MemoryCategory::kParameter];
  module.To(Cpu(1), DType::kFloat64);
  EXPECT_TRUE(module.scale.IsSame(scale));
  EXPECT_EQ(scale.device(), Cpu(1));
  EXPECT_EQ(scale.dtype(), DType::kFloat64);
  EXPECT_EQ(scale.ToVector<float>(), values);
  EXPECT_EQ(autograd::Grad(scale).device(), Cpu(1));
  EXPECT_EQ(autograd::Grad(scale).dtype(), DType::kFloat64);
  EXPECT_EQ(autograd::Grad(scale).ToVector<float>(), gradient);
  EXPECT_EQ(module.count.dtype(), DType::kInt64);
  EXPECT_EQ(module.count.device(), Cpu(1));
  EXPECT_TRUE(autograd::RequiresGrad(scale));
  EXPECT_GE(GetMemoryStats(Cpu(1)).current[MemoryCategory::kParameter] - parameters_before,
            (3 + 9 + 3) * 8);
  // The moved model trains on, accumulating into the moved gradient.
  autograd::Backward(Sum(module(To(To(x, DType::kFloat64), Cpu(1)))));
  for (size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_NEAR(autograd::Grad(scale).ToVector<double>()[i], 2 * gradient[i], 1e-4);
  }
  EXPECT_THAT(MessageOf([&] { module.To(DType::kInt64); }), HasSubstr("not floating point"));
}

TEST(Module, ToLeavesTheModuleWhenMemoryRunsOut) {
  Mixed module;
  const std::vector<float> values = module.scale.ToVector<float>();
  SetCapacityLimit(Cpu(2), GetMemoryStats(Cpu(2)).current_bytes + 64);
  EXPECT_THROW(module.To(Cpu(2)), Error);
  SetCapacityLimit(Cpu(2), std::nullopt);
  for (const auto& [name, tensor] : module.StateDict()) EXPECT_EQ(tensor.device(), Cpu(0)) << name;
  EXPECT_EQ(module.scale.ToVector<float>(), values);
}

TEST(Module, ParametersAreCountedAsSuch) {
  const int64_t before = GetMemoryStats(Cpu(0)).current[MemoryCategory::kParameter];
  Linear module(64, 32);
  EXPECT_GE(GetMemoryStats(Cpu(0)).current[MemoryCategory::kParameter] - before, 64 * 32 * 4);
}

TEST(Module, ZeroGradDropsOrZeros) {
  Linear module(3, 2);
  const Tensor x = FromVector<float>({1, 2, 3}, {1, 3});
  autograd::Backward(Sum(module(x)));
  const Tensor gradient = autograd::Grad(module.weight);
  module.ZeroGrad(/*set_to_none=*/false);
  EXPECT_TRUE(autograd::Grad(module.weight).IsSame(gradient));
  EXPECT_THAT(gradient.ToVector<float>(), ElementsAre(0, 0, 0, 0, 0, 0));
  module.ZeroGrad();
  EXPECT_FALSE(autograd::Grad(module.weight).defined());
  EXPECT_FALSE(autograd::Grad(module.bias).defined());
}

TEST(Module, ModesReachEverything) {
  Sequential net;
  auto inner = net.Emplace<Sequential>();
  auto dropout = inner->Emplace<Dropout>(0.5);
  EXPECT_TRUE(dropout->training());
  net.Eval();
  EXPECT_FALSE(dropout->training());
  net.Train();
  EXPECT_TRUE(dropout->training());
  Mixed module;
  module.SetRequiresGrad(false);
  EXPECT_FALSE(autograd::RequiresGrad(module.inner_->bias));
}

TEST(Module, PrintsItsTree) {
  Sequential net;
  net.Emplace<Linear>(3, 5);
  net.Emplace<Sequential>()->Emplace<Dropout>(0.5);
  EXPECT_EQ(net.ToString(),
            "Sequential {\n  0: Linear(3, 5)\n  1: Sequential {\n    0: Dropout(0.5)\n  }\n}");
}

}  // namespace
}  // namespace lockstep::nn
