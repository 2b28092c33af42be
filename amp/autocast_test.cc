// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/amp/autocast.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/amp/fixed_dtype.h"
#include "lockstep/autograd/autograd.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/ops/testing.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::amp {
namespace {

using autograd::Backward;
using autograd::Grad;
using autograd::NoGradScope;
using autograd::SetGrad;
using autograd::SetRequiresGrad;
using testing::HasSubstr;
using testing_util::Recorder;

constexpr DType kBF16 = DType::kBFloat16;
constexpr DType kF16 = DType::kFloat16;
constexpr DType kF32 = DType::kFloat32;
constexpr DType kF64 = DType::kFloat64;

Tensor Numbers(const Shape& shape, DType dtype = kF32) {
  const int64_t count = NumElements(shape, "Numbers");
  return To(Reshape(Arange(0, static_cast<double>(count), 1, {.dtype = kF32}), shape) * 0.25 - 1.0,
            dtype);
}

Tensor Parameter(const Tensor& values) { return SetRequiresGrad(values, true); }

TEST(AutocastTest, RunsEachClassInItsDType) {
  const Tensor x = Numbers({3, 5}), w = Numbers({2, 5}), v = Numbers({5, 2});
  const Autocast autocast;
  EXPECT_EQ(Linear(x, w).dtype(), kBF16);
  EXPECT_EQ(MatMul(x, v).dtype(), kBF16);
  const Tensor q = Numbers({1, 2, 3, 4});
  EXPECT_EQ(ScaledDotProductAttention(q, q, q).dtype(), kBF16);
  // float32 inside, whatever it is given.
  const Tensor logits = Linear(x, w);
  const Tensor target = FromVector<int64_t>({0, 1, 0}, {3});
  EXPECT_EQ(CrossEntropy(logits, target).dtype(), kF32);
  // As they are.
  EXPECT_EQ(LayerNorm(x, {}, {}).dtype(), kF32);
  EXPECT_EQ(Exp(logits).dtype(), kBF16);
  EXPECT_EQ(Sum(logits).dtype(), kBF16);
  EXPECT_EQ(Add(x, Linear(x, Numbers({5, 5}))).dtype(), kF32) << "binary ops promote by themselves";
  const Tensor parts[] = {logits, Numbers({3, 2})};
  EXPECT_EQ(Concat(parts, 1).dtype(), kF32);
  const Tensor low[] = {logits, logits};
  EXPECT_EQ(Concat(low, 1).dtype(), kBF16);
}

TEST(AutocastTest, CastsInputsAndNothingElse) {
  const Tensor x = Numbers({3, 5}), w = Numbers({2, 5});
  const Autocast autocast;
  Recorder recorder;
  const Tensor y = Linear(x, w);
  // The recorder sits above autocast: it sees the call as it was made, and the casts.
  EXPECT_EQ(recorder.Ops(), "Linear Cast Cast");
  EXPECT_EQ(recorder.calls()[0].inputs[0].dtype(), kF32);
  recorder.Clear();
  Linear(To(x, kBF16), To(w, kBF16));
  EXPECT_EQ(recorder.Ops(), "Cast Cast Linear");
  EXPECT_EQ(x.dtype(), kF32);
}

TEST(AutocastTest, LeavesFloat64IntegersInPlaceAndViewsAlone) {
  const Autocast autocast;
  const Tensor d = Numbers({3, 3}, kF64);
  EXPECT_EQ(MatMul(d, d).dtype(), kF64);
  const Tensor i = Ones({3, 3}, {.dtype = DType::kInt64});
  EXPECT_EQ(MatMul(i, i).dtype(), DType::kInt64);
  Tensor x = Numbers({3, 3});
  AddInPlace(x, Numbers({3, 3}, kBF16));
  EXPECT_EQ(x.dtype(), kF32);
  EXPECT_EQ(Transpose(x, 0, 1).dtype(), kF32);
  const Tensor mixed[] = {Numbers({2}), Numbers({2}, kF64)};
  EXPECT_EQ(Concat(mixed, 0).dtype(), kF64);
}

TEST(AutocastTest, NestsAndRestores) {
  EXPECT_FALSE(AutocastEnabled());
  EXPECT_EQ(AutocastDType(), kBF16);
  EXPECT_EQ(AutocastDType(DeviceType::kCuda), kF16);
  const Tensor x = Numbers({3, 3});
  {
    const Autocast outer;
    EXPECT_TRUE(AutocastEnabled());
    EXPECT_TRUE(AutocastEnabled(DeviceType::kMeta));
    EXPECT_FALSE(AutocastEnabled(DeviceType::kCuda));
    {
      const Autocast inner({.dtype = kF16, .cache_enabled = false});
      EXPECT_EQ(AutocastDType(), kF16);
      EXPECT_FALSE(AutocastCacheEnabled());
      EXPECT_EQ(MatMul(x, x).dtype(), kF16);
      const Autocast off({.enabled = false});
      EXPECT_FALSE(AutocastEnabled());
      EXPECT_EQ(MatMul(x, x).dtype(), kF32);
    }
    EXPECT_EQ(MatMul(x, x).dtype(), kBF16);
    {
      const Autocast cuda({.device_type = DeviceType::kCuda});
      EXPECT_TRUE(AutocastEnabled(DeviceType::kCuda));
      EXPECT_EQ(MatMul(x, x).dtype(), kBF16) << "the CPU's scope is still there";
    }
    EXPECT_EQ(MatMul(testing_util::Meta({3, 5}), testing_util::Meta({5, 2})).dtype(), kBF16);
  }
  EXPECT_EQ(MatMul(x, x).dtype(), kF32);
}

TEST(AutocastTest, RefusesOtherDTypesAndDevices) {
  EXPECT_THAT(MessageOf([] { Autocast({.dtype = kF32}); }),
              HasSubstr("Autocast: dtype float32; give bfloat16 or float16"));
  EXPECT_THAT(MessageOf([] { Autocast({.dtype = DType::kInt64}); }), HasSubstr("dtype int64"));
  EXPECT_THAT(MessageOf([] { Autocast({.device_type = DeviceType::kMeta}); }),
              HasSubstr("no autocast for devices like meta; give kCpu or kCuda; meta tensors"));
  EXPECT_FALSE(AutocastEnabled());
}

TEST(AutocastTest, BackwardRunsInTheForwardsDTypes) {
  const Tensor x = Parameter(Numbers({3, 5})), w = Parameter(Numbers({2, 5})),
               b = Parameter(Numbers({2}));
  Tensor y;
  {
    const Autocast autocast;
    y = Linear(x, w, b);
  }
  Recorder recorder;
  Backward(Sum(y));
  for (const Recorder::Call& call : recorder.calls()) {
    if (call.op != OpId::kMatMul) continue;
    EXPECT_EQ(call.inputs[0].dtype(), kBF16);
    EXPECT_EQ(call.inputs[1].dtype(), kBF16);
  }
  for (const Tensor& leaf : {x, w, b}) EXPECT_EQ(Grad(leaf).dtype(), kF32);
  EXPECT_EQ(Grad(b).Item<float>({1}), 3);
  EXPECT_EQ(Grad(x).Item<float>({2, 4}), w.Item<float>({0, 4}) + w.Item<float>({1, 4}));
}

TEST(AutocastTest, PureScopesLookUpParametersInLowPrecision) {
  const Tensor table = Parameter(Numbers({7, 3}));
  const Tensor ids = FromVector<int64_t>({0, 6}, {2});
  Tensor frozen;
  {
    CategoryScope category(MemoryCategory::kParameter);
    frozen = Clone(Numbers({7, 3}));
  }
  {
    const Autocast autocast;
    EXPECT_EQ(Embedding(table, ids).dtype(), kF32);
  }
  const Autocast autocast({.pure = true});
  const Tensor x = Embedding(table, ids);
  EXPECT_EQ(x.dtype(), kBF16);
  EXPECT_EQ(Embedding(frozen, ids).dtype(), kBF16);
  EXPECT_EQ(IndexSelect(Numbers({7, 3}), 0, ids).dtype(), kF32) << "data is not a parameter";
  // The stream stays in 16 bits through norms with float32 weights, and the loss is float32.
  const Tensor weight = Parameter(Ones({3}));
  const Tensor y = x + Linear(LayerNorm(x, weight, Tensor()), Numbers({3, 3}));
  EXPECT_EQ(y.dtype(), kBF16);
  const Tensor loss = CrossEntropy(y, FromVector<int64_t>({0, 2}, {2}));
  EXPECT_EQ(loss.dtype(), kF32);
  Backward(loss);
  EXPECT_EQ(Grad(table).dtype(), kF32);
  EXPECT_EQ(Grad(weight).dtype(), kF32);
  EXPECT_NE(Grad(table).Item<float>({6, 2}), 0);
  EXPECT_EQ(Grad(table).Item<float>({1, 2}), 0);
}

TEST(AutocastTest, ParsesWhatProgramsTake) {
  EXPECT_FALSE(ParseAutocast("").has_value());
  EXPECT_EQ(ParseAutocast("bf16")->dtype, kBF16);
  EXPECT_FALSE(ParseAutocast("bf16")->pure);
  EXPECT_EQ(ParseAutocast("pure_fp16")->dtype, kF16);
  EXPECT_TRUE(ParseAutocast("pure_fp16")->pure);
  for (const char* text : {"fp32", "pure_", "BF16", "pure"}) {
    EXPECT_THAT(MessageOf([&] { ParseAutocast(text); }),
                HasSubstr(std::string("no mixed precision '") + text + "'; give bf16"));
  }
}

// ---- The cache of weights ----

TEST(AutocastCacheTest, CastsAParameterOnce) {
  const Tensor x = Numbers({3, 5}), w = Parameter(Numbers({2, 5}));
  const Autocast autocast;
  Recorder recorder;
  const Tensor first = Linear(x, w), second = Linear(x, w);
  EXPECT_EQ(recorder.Ops(), "Linear Cast Cast Linear Cast");
  EXPECT_EQ(AutocastCacheBytes(), 2 * 5 * 2);
  ClearAutocastCache();
  EXPECT_EQ(AutocastCacheBytes(), 0);
  recorder.Clear();
  Linear(x, w);
  EXPECT_EQ(recorder.Ops(), "Linear Cast Cast");
  recorder.Clear();
  const Autocast uncached({.cache_enabled = false});
  Linear(x, w);
  EXPECT_EQ(recorder.Ops(), "Linear Cast Cast");
  // Both uses give gradients, added up in the copy's dtype.
  Backward(Sum(first) + Sum(second));
  EXPECT_EQ(Grad(w).Item<float>({0, 0}),
            2 * (x.Item<float>({0, 0}) + x.Item<float>({1, 0}) + x.Item<float>({2, 0})));
}

TEST(AutocastCacheTest, KeepsLeavesOnly) {
  const Tensor x = Numbers({3, 5}), w = Parameter(Numbers({2, 5}));
  const Autocast autocast;
  Linear(x, w * 2.0);
  Linear(x, autograd::SetRequiresGrad(Numbers({2, 5}), false));
  EXPECT_EQ(AutocastCacheBytes(), 0);
}

// A copy made for evaluation must not cut the training pass off from its weights, nor an old copy
// serve after a step.
TEST(AutocastCacheTest, EvaluationAndUpdatesInsideOneScope) {
  const Tensor w = Parameter(FromVector<float>({2}, {1, 1}));
  const Tensor x = FromVector<float>({3}, {1, 1});
  const Autocast autocast;
  {
    NoGradScope no_grad;
    EXPECT_EQ(MatMul(x, w).Item<float>(), 6);
  }
  const Tensor y = MatMul(x, w);
  EXPECT_EQ(y.Item<float>(), 6);
  Backward(y);
  ASSERT_TRUE(Grad(w).defined());
  EXPECT_EQ(Grad(w).Item<float>(), 3);
  {
    NoGradScope no_grad;
    FillInPlace(w, 4);
    EXPECT_EQ(MatMul(x, w).Item<float>(), 12);
  }
  EXPECT_EQ(MatMul(x, w).Item<float>(), 12);
  // A second backward through the one copy: two micro-batches in one scope.
  SetGrad(w, {});
  Backward(MatMul(x, w));
  Backward(MatMul(x, w));
  EXPECT_EQ(Grad(w).Item<float>(), 6);
  {
    autograd::InferenceScope inference;
    EXPECT_EQ(MatMul(x, w).Item<float>(), 12);
  }
  EXPECT_NO_THROW(Backward(MatMul(x, w)));
}

TEST(AutocastCacheTest, EndsWithTheOutermostScope) {
  const Tensor w = Parameter(Numbers({64, 64})), x = Numbers({2, 64});
  const int64_t before = GetMemoryStats(Cpu()).current_bytes;
  Tensor y;
  {
    const Autocast outer;
    {
      const Autocast inner;
      y = Linear(x, w);
    }
    EXPECT_EQ(AutocastCacheBytes(), 64 * 64 * 2) << "an inner scope's copy serves the outer one";
  }
  y = Tensor();
  EXPECT_EQ(GetMemoryStats(Cpu()).current_bytes, before);
  EXPECT_EQ(AutocastCacheBytes(), 0);
}

TEST(AutocastCacheTest, ALateBackwardKeepsNothing) {
  // A custom function whose backward multiplies with a parameter, under its forward's autocast.
  class Twice : public autograd::CustomFunction {
   public:
    explicit Twice(Tensor w) : w_(std::move(w)) {}
    std::string Name() const override { return "Twice"; }
    std::vector<Tensor> Forward(autograd::FunctionContext&, TensorSpan in) override {
      return {MatMul(in[0], w_)};
    }
    std::vector<Tensor> Backward(autograd::FunctionContext&, TensorSpan g) override {
      dtype = MatMul(g[0], w_, {.transpose_a = false, .transpose_b = true}).dtype();
      return {To(MatMul(g[0], w_, {.transpose_a = false, .transpose_b = true}), kF32)};
    }
    DType dtype = kF32;

   private:
    Tensor w_;
  };
  const Tensor w = Parameter(Numbers({8, 8})), x = Parameter(Numbers({2, 8}));
  const auto function = std::make_shared<Twice>(w);
  Tensor y;
  {
    const Autocast autocast;
    const Tensor inputs[] = {x};
    y = autograd::Apply(function, inputs)[0];
  }
  const int64_t before = GetMemoryStats(Cpu()).current_bytes;
  Backward(Sum(y), {.retain_graph = true});
  EXPECT_EQ(function->dtype, kBF16) << "the backward runs under the forward's autocast";
  EXPECT_EQ(GetMemoryStats(Cpu()).current_bytes - before, Grad(x).bytes());
}

TEST(AutocastTest, TravelsWithTheThreadState) {
  const Tensor x = Numbers({3, 3});
  DType other = kF32, captured = kF32;
  const Autocast autocast;
  std::thread([&] { other = MatMul(x, x).dtype(); }).join();
  std::thread([&, state = CurrentThreadState()] {
    ScopedThreadState scope(state);
    captured = MatMul(x, x).dtype();
  }).join();
  EXPECT_EQ(other, kF32);
  EXPECT_EQ(captured, kBF16);
}

TEST(AutocastTest, AReplayedStateCastsAnewAndAlike) {
  const Tensor x = Numbers({3, 5}), w = Parameter(Numbers({2, 5}));
  ThreadState state;
  Tensor first;
  {
    const Autocast autocast({.dtype = kF16});
    first = Linear(x, w);
    state = CurrentThreadState();
  }
  for (auto& layer : state.layer_state) {
    if (layer == nullptr) continue;
    if (auto replay = layer->ForReplay()) layer = std::move(replay);
  }
  ScopedThreadState scope(state);
  Recorder recorder;
  const Tensor again = Linear(x, w);
  Linear(x, w);
  EXPECT_EQ(recorder.Ops(), "Linear Cast Cast Linear Cast");
  EXPECT_EQ(again.dtype(), kF16);
  EXPECT_EQ(To(again, kF32).ToVector<float>(), To(first, kF32).ToVector<float>());
}

// ---- Custom functions ----

class Square : public autograd::CustomFunction {
 public:
  std::string Name() const override { return "Square"; }
  std::vector<Tensor> Forward(autograd::FunctionContext& context, TensorSpan in) override {
    context.SaveForBackward(in);
    forward = in[0].dtype();
    enabled = AutocastEnabled();
    return {Mul(in[0], in[0])};
  }
  std::vector<Tensor> Backward(autograd::FunctionContext& context, TensorSpan g) override {
    enabled |= AutocastEnabled();
    backward = g[0].dtype();
    return {Mul(g[0], context.Saved()[0]) * 2.0};
  }
  DType forward = kF64, backward = kF64;
  bool enabled = false;
};

TEST(ApplyInDTypeTest, FixesForwardAndBackward) {
  const Tensor x = Parameter(Numbers({5}, kBF16));
  const Tensor inputs[] = {x};
  auto function = std::make_shared<Square>();
  {
    const Autocast autocast;
    const Tensor y = ApplyInDType(function, inputs, kF32)[0];
    EXPECT_EQ(y.dtype(), kF32);
    Backward(Sum(y));
    EXPECT_TRUE(AutocastEnabled());
  }
  EXPECT_EQ(function->forward, kF32);
  EXPECT_EQ(function->backward, kF32);
  EXPECT_FALSE(function->enabled);
  EXPECT_EQ(Grad(x).dtype(), kBF16);
  EXPECT_EQ(Grad(x).Item<float>({4}), 0);
  EXPECT_EQ(Grad(x).Item<float>({1}), -1.5f);
  // Without autocast: as it is given.
  EXPECT_EQ(ApplyInDType(function, inputs, kF32)[0].dtype(), kBF16);
  EXPECT_THAT(MessageOf([&] { ApplyInDType(function, inputs, DType::kInt32); }),
              HasSubstr("ApplyInDType: dtype int32 is not floating point"));
}

// ---- An op that is unsafe in 16 bits ----

TEST(AutocastTest, RefusesWhatIsUnsafe) {
  OpInfo info;
  info.name = "UnsafeLoss";
  info.inputs = ParseInputs("x");
  info.outputs = {"y"};
  info.amp_cpu = AmpClass::kRefused;
  info.doc = "use UnsafeLossWithLogits";
  info.shape_rule = [](const OpCall& call, SpecList& outputs) {
    TensorSpec& spec = outputs.emplace_back();
    spec.shape = call.inputs[0].shape();
    spec.dtype = call.inputs[0].dtype();
  };
  const OpId op = RegisterOp(info);
  const Tensor x = testing_util::Meta({3});
  const Tensor inputs[] = {x};
  EXPECT_NO_THROW(Dispatch1(op, inputs));
  const Autocast autocast;
  EXPECT_THAT(MessageOf([&] { Dispatch1(op, inputs); }),
              HasSubstr("UnsafeLoss: is unsafe under autocast: its results leave the range of 16 "
                        "bits. use UnsafeLossWithLogits"));
  const Autocast off({.enabled = false});
  EXPECT_NO_THROW(Dispatch1(op, inputs));
}

}  // namespace
}  // namespace lockstep::amp
