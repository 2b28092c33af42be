// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/op_policy.h"

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/custom_function.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/nn/attention.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/span_observer.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::checkpoint {
namespace {

using autograd::Backward;
using autograd::Gradients;
using autograd::SavedBytes;
using autograd::SetRequiresGrad;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

Tensor Leaf(const Shape& shape, double scale = 0.1) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  Floats values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(scale * static_cast<double>((i * 5 + 2) % 13 - 6)));
  }
  return SetRequiresGrad(FromVector<float>(values, shape), true);
}

// Kernels run while it lives, by name.
class KernelCounts : public SpanObserver {
 public:
  void OnSpan(const Span& span) override { ++counts[std::string(span.name)]; }
  std::map<std::string, int> counts;
};

std::map<std::string, int> KernelsOf(const std::function<void()>& body) {
  auto counter = std::make_shared<KernelCounts>();
  auto saved = MutableThreadState().observer;
  MutableThreadState().observer = counter;
  body();
  MutableThreadState().observer = saved;
  return counter->counts;
}

struct Net {
  Tensor w1 = Leaf({6, 4}), w2 = Leaf({4, 6}, 0.2);
  Tensor operator()(const Tensor& x) const {
    const Tensor h = Gelu(MatMul(x, Transpose(w1, 0, 1)));
    return MatMul(Dropout(h, 0.3), Transpose(w2, 0, 1));
  }
  std::vector<Tensor> leaves(const Tensor& x) const { return {w1, w2, x}; }
};

std::vector<Floats> GradientsOf(const Tensor& y, const std::vector<Tensor>& leaves) {
  std::vector<Floats> result;
  for (const Tensor& g : Gradients({Sum(Exp(y))}, leaves)) result.push_back(g.ToVector<float>());
  return result;
}

TEST(OpPolicyTest, EveryPolicyGivesTheSameGradients) {
  const Net net;
  const Tensor x = Leaf({3, 4});
  ManualSeed(8);
  const std::vector<Floats> plain = GradientsOf(net(x), net.leaves(x));
  const OpPolicy policies[] = {
      nullptr,
      SaveContractions(),
      SaveContractionsExcept({net.w1}),
      SaveOps({OpId::kGelu, OpId::kDropout}),
      [](const OpContext&) { return OpDecision::kMustSave; },
      [](const OpContext&) { return OpDecision::kPreferSave; },
      [](const OpContext&) { return OpDecision::kMustRecompute; },
      Except(SaveContractions(), [](const OpContext& call) { return call.OutputBytes() > 60; })};
  for (const bool early_stop : {true, false}) {
    for (const OpPolicy& policy : policies) {
      ManualSeed(8);
      const Tensor y =
          Checkpoint([&](const Tensor& in) { return net(in); }, x,
                     {.early_stop = early_stop, .verify_values = true, .policy = policy});
      EXPECT_EQ(GradientsOf(y, net.leaves(x)), plain);
    }
  }
}

TEST(OpPolicyTest, SavedResultsAreNotComputedAgain) {
  const Net net;
  const Tensor x = Leaf({3, 4});
  const auto kernels = [&](const OpPolicy& policy) {
    const Tensor y =
        Sum(Checkpoint([&](const Tensor& in) { return net(in); }, x, {.policy = policy}));
    return KernelsOf([&] { Gradients({y}, net.leaves(x)); });
  };
  // The second MatMul never runs again: the recomputation ends when its inputs are there.
  auto all = kernels(nullptr);
  auto saved = kernels(SaveContractions());
  EXPECT_EQ(all["MatMul"] - saved["MatMul"], 1);
  EXPECT_EQ(all["Gelu"], 1);
  EXPECT_EQ(saved["Gelu"], 1);
  EXPECT_EQ(kernels(SaveOps({OpId::kGelu}))["Gelu"], 0);
}

TEST(OpPolicyTest, SavedResultsCountAndTheUselessOneDoesNot) {
  const Net net;
  const Tensor x = Leaf({3, 4});
  const int64_t before = SavedBytes();
  {
    const Tensor y =
        Checkpoint([&](const Tensor& in) { return net(in); }, x, {.policy = SaveContractions()});
    EXPECT_EQ(SavedBytes() - before, 3 * 6 * 4);  // not the region's own result
    Backward(Sum(y));
    EXPECT_EQ(SavedBytes(), before);
  }
  const Tensor y = Checkpoint([&](const Tensor& in) { return net(in); }, x,
                              {.early_stop = false, .policy = SaveContractions()});
  EXPECT_EQ(SavedBytes() - before, 3 * 6 * 4 + 3 * 4 * 4);  // a full second run takes it
}

TEST(OpPolicyTest, PolicySeesEachCallInBothRuns) {
  const Tensor x = Leaf({3, 4}), w = Leaf({4, 4});
  std::vector<std::string> first, second;
  const OpPolicy policy = [&](const OpContext& call) {
    (call.is_recompute() ? second : first).push_back(call.info().name);
    if (call.op() == OpId::kMatMul) {
      EXPECT_TRUE(call.inputs()[1].IsSame(w));
      EXPECT_EQ(call.OutputBytes(), 48);
    }
    Add(Ones({2}), 1.0);  // not an op of the region
    return OpDecision::kPreferRecompute;
  };
  const Tensor y = Sum(Checkpoint(
      [&](const Tensor& in) {
        // Views, and ops that write, are not asked about.
        const Tensor h = Reshape(Transpose(MatMul(in, w), 0, 1), {12});
        Tensor scratch = Zeros({12});
        AddInPlace(scratch, Ones({12}));
        return Tanh(Mul(h, h));
      },
      x, {.policy = policy}));
  Backward(y);
  ASSERT_GE(first.size(), 4u);
  EXPECT_EQ(first[0], "MatMul");
  EXPECT_EQ(first.back(), "Tanh");
  EXPECT_EQ(second, first);
}

TEST(OpPolicyTest, AChangedResultIsRefused) {
  const Tensor x = Leaf({3, 4}), w = Leaf({4, 4});
  const Tensor y = Sum(Checkpoint(
      [&](const Tensor& in) {
        const Tensor h = MatMul(in, w);
        AddInPlace(h, in);
        return Exp(h);
      },
      x, {.policy = SaveContractions()}));
  const Error error = ErrorOf([&] { Backward(y); });
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("a result of MatMul (float32[3, 4] on cpu:0) that the"));
}

TEST(OpPolicyTest, WhenTheTwoAnswersDiffer) {
  const Tensor x = Leaf({3, 4}), w = Leaf({4, 4});
  // How often MatMul ran in the second run.
  const auto run = [&](OpDecision first, OpDecision second) {
    const Tensor y = Sum(Checkpoint(
        [&](const Tensor& in) { return Exp(Tanh(MatMul(in, w))); }, x,
        {.policy = [=](const OpContext& call) { return call.is_recompute() ? second : first; }}));
    // Two of them are MatMul's own gradient.
    return KernelsOf([&] { Gradients({y}, {x, w}); })["MatMul"] - 2;
  };
  using enum OpDecision;
  EXPECT_EQ(run(kMustSave, kMustSave), 0);
  EXPECT_EQ(run(kMustRecompute, kPreferSave), 1);
  EXPECT_EQ(run(kPreferSave, kPreferRecompute), 0);
  EXPECT_EQ(run(kMustSave, kMustRecompute), 1);
  EXPECT_THAT(MessageOf([&] { run(kPreferRecompute, kMustSave); }),
              HasSubstr("kMustSave for call 0 of MatMul"));
}

// A nested region decides for itself; the outer policy does not see its ops.
TEST(OpPolicyTest, NestedRegions) {
  const Net net;
  const Tensor x = Leaf({3, 4}), w = Leaf({4, 4});
  const auto run = [&](bool outer, bool inner) {
    ManualSeed(6);
    const auto body = [&](const Tensor& in) { return net(Tanh(in)); };
    const auto whole = [&](const Tensor& in) {
      const Tensor h = MatMul(in, w);
      return Tanh(inner ? Checkpoint(body, h, {.policy = SaveOps({OpId::kTanh})}) : body(h));
    };
    const Tensor y = outer ? Checkpoint(whole, x, {.policy = SaveContractions()}) : whole(x);
    return GradientsOf(y, {x, w, net.w1, net.w2});
  };
  const int64_t before = SavedBytes();
  const std::vector<Floats> plain = run(false, false);
  EXPECT_EQ(run(true, false), plain);
  EXPECT_EQ(run(false, true), plain);
  EXPECT_EQ(run(true, true), plain);
  EXPECT_EQ(SavedBytes(), before);
}

// Ops in a custom function run without recording.
class Square : public autograd::CustomFunction {
 public:
  std::string Name() const override { return "Square"; }
  std::vector<Tensor> Forward(autograd::FunctionContext& context, TensorSpan in) override {
    context.SaveForBackward(in);
    return {MatMul(in[0], in[0])};
  }
  std::vector<Tensor> Backward(autograd::FunctionContext& context, TensorSpan g) override {
    const Tensor x = context.Saved()[0];
    return {MatMul(g[0], Transpose(x, 0, 1)) + MatMul(Transpose(x, 0, 1), g[0])};
  }
};

TEST(OpPolicyTest, CustomFunctions) {
  const Tensor x = Leaf({4, 4});
  const auto region = [](const Tensor& in) {
    return Exp(autograd::Apply(std::make_shared<Square>(), {Tanh(in)})[0]);
  };
  const std::vector<Floats> plain = GradientsOf(region(x), {x});
  const Tensor y = Checkpoint(region, x, {.policy = SaveContractions()});
  std::vector<Floats> checked;
  const auto counts = KernelsOf([&] { checked = GradientsOf(y, {x}); });
  EXPECT_EQ(checked, plain);
  EXPECT_EQ(counts.at("MatMul"), 2);  // those of Backward
}

TEST(OpPolicyTest, HigherOrderAndAnotherThread) {
  const Net net;
  const Tensor x = Leaf({3, 4});
  const auto run = [&](bool checkpointed) {
    ManualSeed(3);
    const auto region = [&](const Tensor& in) { return net(in); };
    const Tensor y =
        Sum(Exp(checkpointed ? Checkpoint(region, x, {.policy = SaveContractions()}) : region(x)));
    std::vector<Floats> result;
    std::thread([&] {
      const Tensor g = Gradients({y}, {x}, {.create_graph = true})[0];
      for (const Tensor& t : Gradients({Sum(Mul(g, g))}, {net.w1, x})) {
        result.push_back(t.ToVector<float>());
      }
    }).join();
    return result;
  };
  EXPECT_EQ(run(true), run(false));
}

// The second pass may overtake a first one that is still in its backward.
TEST(OpPolicyTest, ABackwardInsideTheRegion) {
  const Tensor w = Leaf({4, 4}), x = Leaf({3, 4}, 0.2);
  const auto region = [&](const Tensor& in) {
    const Tensor y = Sum(Tanh(MatMul(Tanh(in), w)));
    const Tensor slope = Gradients({y}, {in}, {.create_graph = true})[0];
    return Add(Sum(Mul(slope, slope)), y);
  };
  const std::vector<Floats> plain = GradientsOf(region(x), {w, x});
  const OpPolicy save_all = [](const OpContext&) { return OpDecision::kMustSave; };
  for (const OpPolicy& policy : {SaveContractions(), save_all}) {
    for (const bool early_stop : {true, false}) {
      const CheckpointOptions options{.early_stop = early_stop, .policy = policy};
      EXPECT_EQ(GradientsOf(Checkpoint(region, x, options), {w, x}), plain) << early_stop;
    }
  }
}

TEST(OpPolicyTest, WeightsByName) {
  nn::CausalSelfAttention attention({.width = 4, .heads = 2});
  const std::vector<Tensor> weights = WeightsOf(attention, "c_attn");
  ASSERT_EQ(weights.size(), 1u);
  EXPECT_TRUE(weights[0].IsSame(attention.c_attn()->weight));
  const Error error = ErrorOf([&] { WeightsOf(attention, "attn"); });
  EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(error.message(), HasSubstr("c_attn, c_proj"));
}

TEST(OpPolicyTest, BadArguments) {
  EXPECT_THAT(MessageOf([] { SaveOps({}); }), HasSubstr("no ops"));
  EXPECT_THAT(MessageOf([] { SaveContractionsExcept({}); }), HasSubstr("no weights"));
  EXPECT_THAT(MessageOf([] {
                SaveContractionsExcept({Ones({1}), Tensor()});
              }),
              HasSubstr("weight 1 is undefined"));
  EXPECT_THAT(MessageOf([] { Except(nullptr, [](const OpContext&) { return true; }); }),
              HasSubstr("empty function"));
  EXPECT_THAT(MessageOf([] { Except(SaveContractions(), nullptr); }), HasSubstr("empty function"));
}

}  // namespace
}  // namespace lockstep::checkpoint
