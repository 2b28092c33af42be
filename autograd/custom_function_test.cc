// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/custom_function.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_check.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/substitution.h"

namespace lockstep::autograd {
namespace {

using Values = std::vector<double>;

Tensor Constant(const Values& values) {
  return FromVector<double>(values, {static_cast<int64_t>(values.size())});
}
Tensor Leaf(const Values& values) { return SetRequiresGrad(Constant(values), true); }

// x * y and x + y, with all of the context in use.
class ProductAndSum : public CustomFunction {
 public:
  std::string Name() const override { return "ProductAndSum"; }
  std::vector<Tensor> Forward(FunctionContext& context, TensorSpan inputs) override {
    EXPECT_FALSE(GradEnabled());
    context.SaveForBackward({inputs[0], inputs[1]});
    return {Mul(inputs[0], inputs[1]), Add(inputs[0], inputs[1])};
  }
  std::vector<Tensor> Backward(FunctionContext& context, TensorSpan gradients) override {
    const std::vector<Tensor> saved = context.Saved();
    masks.push_back({context.Wanted(0), context.Wanted(1)});
    Tensor dx, dy;
    if (context.Wanted(0)) dx = Add(Mul(gradients[0], saved[1]), gradients[1]);
    if (context.Wanted(1)) dy = Add(Mul(gradients[0], saved[0]), gradients[1]);
    return {dx, dy};
  }
  std::vector<std::vector<bool>> masks;
};

// A function made of lambdas.
class Lambdas : public CustomFunction {
 public:
  using Body = std::function<std::vector<Tensor>(FunctionContext&, TensorSpan)>;
  Lambdas(Body forward, Body backward)
      : forward_(std::move(forward)), backward_(std::move(backward)) {}
  std::string Name() const override { return "Lambdas"; }
  std::vector<Tensor> Forward(FunctionContext& context, TensorSpan inputs) override {
    return forward_(context, inputs);
  }
  std::vector<Tensor> Backward(FunctionContext& context, TensorSpan gradients) override {
    return backward_(context, gradients);
  }

 private:
  Body forward_, backward_;
};

std::vector<Tensor> ApplyLambdas(Lambdas::Body forward, Lambdas::Body backward, TensorSpan inputs) {
  return Apply(std::make_shared<Lambdas>(std::move(forward), std::move(backward)), inputs);
}

TEST(CustomFunctionTest, ForwardAndBackward) {
  const Tensor x = Leaf({2, 3}), y = Leaf({5, 7});
  auto function = std::make_shared<ProductAndSum>();
  const std::vector<Tensor> out = Apply(function, {x, y});
  EXPECT_EQ(GradNodeName(out[0]), "ProductAndSum");
  EXPECT_EQ(out[0].ToVector<double>(), (Values{10, 21}));
  EXPECT_EQ(out[0].storage()->category(), MemoryCategory::kActivation);
  Backward(Sum(Add(out[0], Mul(out[1], 10.0))));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{15, 17}));
  EXPECT_EQ(Grad(y).ToVector<double>(), (Values{12, 13}));
}

// Writes its name when its backward runs.
class Logged : public CustomFunction {
 public:
  Logged(std::string name, bool at_once, std::vector<std::string>* log)
      : name_(std::move(name)), at_once_(at_once), log_(log) {}
  std::string Name() const override { return name_; }
  bool RunsBackwardAtOnce() const override { return at_once_; }
  std::vector<Tensor> Forward(FunctionContext&, TensorSpan inputs) override {
    return {Mul(inputs[0], 2.0)};
  }
  std::vector<Tensor> Backward(FunctionContext&, TensorSpan gradients) override {
    log_->push_back(name_);
    return {Mul(gradients[0], 2.0)};
  }

 private:
  std::string name_;
  bool at_once_;
  std::vector<std::string>* log_;
};

TEST(CustomFunctionTest, RunsBackwardAtOnceWhenAsked) {
  for (const bool at_once : {false, true}) {
    const Tensor w = Leaf({3}), x = Leaf({5});
    std::vector<std::string> log;
    const Tensor weight = Apply(std::make_shared<Logged>("weight", at_once, &log), {w})[0];
    const Tensor layer = Apply(std::make_shared<Logged>("layer", false, &log), {x})[0];
    Backward(Mul(layer, weight));
    // Else what was made last runs first.
    EXPECT_EQ(log[0], at_once ? "weight" : "layer");
    EXPECT_EQ(Grad(w).ToVector<double>(), (Values{20}));
    EXPECT_EQ(Grad(x).ToVector<double>(), (Values{12}));
  }
}

TEST(CustomFunctionTest, TakesWhatStandsForItsInputs) {
  const Tensor x = Leaf({2, 3}), y = Leaf({5, 7}), other = Leaf({20, 30});
  Substitution substitution;
  substitution.Add(x, other);
  std::vector<Tensor> out;
  {
    const SubstitutionScope scope(std::make_shared<const Substitution>(std::move(substitution)));
    out = Apply(std::make_shared<ProductAndSum>(), {x, y});
  }
  EXPECT_EQ(out[0].ToVector<double>(), (Values{100, 210}));
  Backward(Sum(out[0]));
  EXPECT_FALSE(Grad(x).defined());
  EXPECT_EQ(Grad(other).ToVector<double>(), (Values{5, 7}));
  EXPECT_EQ(Grad(y).ToVector<double>(), (Values{20, 30}));
}

TEST(CustomFunctionTest, OnlyWantedGradients) {
  const Tensor x = Constant({2, 3}), y = Leaf({5, 7});
  auto function = std::make_shared<ProductAndSum>();
  Backward(Sum(Apply(function, {x, y})[0]));  // the other output's gradient comes as zeros
  ASSERT_EQ(function->masks.size(), 1u);
  EXPECT_EQ(function->masks[0], (std::vector<bool>{false, true}));
  EXPECT_EQ(Grad(y).ToVector<double>(), (Values{2, 3}));
}

TEST(CustomFunctionTest, HigherOrder) {
  const GradCheckResult result =
      GradCheck([](TensorSpan in) { return Apply(std::make_shared<ProductAndSum>(), in); },
                {Leaf({2, 3}), Leaf({5, -7})}, {.second_order = true});
  EXPECT_TRUE(result.ok) << result.message;
}

TEST(CustomFunctionTest, UndefinedGradientsOnRequest) {
  const Tensor x = Leaf({2, 3});
  bool undefined = false;
  const auto out = ApplyLambdas(
      [](FunctionContext& context, TensorSpan in) -> std::vector<Tensor> {
        context.SetMaterializeGradients(false);
        return {Clone(in[0]), Clone(in[0])};
      },
      [&](FunctionContext&, TensorSpan gradients) -> std::vector<Tensor> {
        undefined = !gradients[0].defined();
        return {gradients[1]};
      },
      {x});
  Backward(Sum(out[1]));
  EXPECT_TRUE(undefined);
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{1, 1}));
}

TEST(CustomFunctionTest, NonDifferentiableOutputs) {
  const Tensor x = Leaf({2, 3});
  const auto out = ApplyLambdas(
      [](FunctionContext& context, TensorSpan in) -> std::vector<Tensor> {
        context.MarkNonDifferentiable(1);
        return {Clone(in[0]), Clone(in[0]), To(in[0], DType::kInt64)};
      },
      [](FunctionContext&, TensorSpan gradients) -> std::vector<Tensor> { return {gradients[0]}; },
      {x});
  EXPECT_TRUE(RequiresGrad(out[0]));
  EXPECT_FALSE(RequiresGrad(out[1]));
  EXPECT_FALSE(RequiresGrad(out[2]));
}

TEST(CustomFunctionTest, AnInputAsOutputIsAnAliasOfIt) {
  const Tensor x = Leaf({2, 3});
  const auto identity = [](FunctionContext&, TensorSpan in) -> std::vector<Tensor> {
    return {in[0]};
  };
  const Tensor y = ApplyLambdas(
      identity,
      [](FunctionContext&, TensorSpan g) -> std::vector<Tensor> { return {Mul(g[0], 5.0)}; },
      {x})[0];
  EXPECT_FALSE(y.IsSame(x));
  EXPECT_TRUE(IsLeaf(x));
  EXPECT_EQ(y.storage(), x.storage());
  ExpectError(absl::StatusCode::kUnimplemented, "view", [&] { AddInPlace(y, 1.0); });
  Backward(Sum(y));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{5, 5}));
}

TEST(CustomFunctionTest, SavedTensorsAreCheckedAndFreed) {
  const Tensor x = Leaf({2, 3});
  const Tensor h = Mul(x, 1.0);
  const int64_t before = SavedBytes();
  const Tensor y = Sum(Apply(std::make_shared<ProductAndSum>(), {h, x})[0]);
  EXPECT_EQ(SavedBytes() - before, h.bytes());
  Backward(y);
  EXPECT_EQ(SavedBytes(), before);
  ExpectError(absl::StatusCode::kFailedPrecondition, "retain_graph", [&] { Backward(y); });
  const Tensor k = Mul(x, 1.0);
  const Tensor z = Sum(Apply(std::make_shared<ProductAndSum>(), {k, x})[0]);
  AddInPlace(k, 1.0);
  ExpectError(absl::StatusCode::kFailedPrecondition, "ProductAndSum", [&] { Backward(z); });
}

TEST(CustomFunctionTest, Refusals) {
  const Tensor x = Leaf({2, 3});
  const auto none = [](FunctionContext&, TensorSpan) -> std::vector<Tensor> { return {}; };
  const auto clone = [](FunctionContext&, TensorSpan in) -> std::vector<Tensor> {
    return {Clone(in[0])};
  };
  ExpectError(absl::StatusCode::kInvalidArgument, "no function", [&] { Apply(nullptr, {x}); });
  ExpectError(absl::StatusCode::kInvalidArgument, "undefined output 0", [&] {
    ApplyLambdas([](FunctionContext&, TensorSpan) { return std::vector<Tensor>(1); }, none, {x});
  });
  ExpectError(absl::StatusCode::kInvalidArgument, "0 gradients for 1 inputs",
              [&] { Backward(Sum(ApplyLambdas(clone, none, {x})[0])); });
  ExpectError(absl::StatusCode::kInvalidArgument, "float64[3]", [&] {
    Backward(Sum(ApplyLambdas(clone,
                              [](FunctionContext&, TensorSpan) -> std::vector<Tensor> {
                                return {Constant({1, 2, 3})};
                              },
                              {x})[0]));
  });
  ExpectError(absl::StatusCode::kFailedPrecondition, "in place", [&] {
    ApplyLambdas([](FunctionContext&,
                    TensorSpan in) -> std::vector<Tensor> { return {AddInPlace(in[0], 1.0)}; },
                 none, {x});
  });
  ExpectError(absl::StatusCode::kFailedPrecondition, "twice", [&] {
    ApplyLambdas(
        [](FunctionContext& context, TensorSpan in) -> std::vector<Tensor> {
          context.SaveForBackward({in[0]});
          context.SaveForBackward({in[0]});
          return {Clone(in[0])};
        },
        none, {x});
  });
  ExpectError(absl::StatusCode::kFailedPrecondition, "Saved", [&] {
    ApplyLambdas(
        [](FunctionContext& context, TensorSpan) -> std::vector<Tensor> { return context.Saved(); },
        none, {x});
  });
}

}  // namespace
}  // namespace lockstep::autograd
