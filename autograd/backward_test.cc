// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/backward.h"

#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd {
namespace {

using Values = std::vector<double>;

Tensor Leaf(const Values& values) {
  return SetRequiresGrad(FromVector<double>(values, {static_cast<int64_t>(values.size())}), true);
}

bool Contains(const Error& error, const std::string& text) {
  return error.message().find(text) != std::string::npos;
}

TEST(RequiresGradTest, LeavesAndResults) {
  const Tensor x = FromVector<double>({1, 2, 3}, {3});
  EXPECT_FALSE(RequiresGrad(x));
  EXPECT_TRUE(IsLeaf(x));
  EXPECT_FALSE(RequiresGrad(Mul(x, x)));
  SetRequiresGrad(x, true);
  const Tensor y = Mul(x, x);
  EXPECT_TRUE(RequiresGrad(y));
  EXPECT_FALSE(IsLeaf(y));
  EXPECT_EQ(GradNodeName(y), "Mul");
  EXPECT_EQ(GradNodeName(x), "");
  EXPECT_FALSE(RequiresGrad(Detach(y)));
  EXPECT_FALSE(RequiresGrad(Greater(x, y)));
  EXPECT_FALSE(RequiresGrad(To(x, DType::kInt64)));
  SetRequiresGrad(x, false);
  EXPECT_FALSE(RequiresGrad(Mul(x, x)));
}

TEST(RequiresGradTest, RefusesWhatCannotHaveGradients) {
  EXPECT_EQ(ErrorOf([] { SetRequiresGrad(FromVector<int64_t>({1}, {1}), true); }).code(),
            absl::StatusCode::kInvalidArgument);
  const Tensor x = Leaf({1, 2});
  const Error error = ErrorOf([&] { SetRequiresGrad(Mul(x, x), false); });
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Contains(error, "Detach")) << error.what();
  EXPECT_EQ(ErrorOf([] { RetainGrad(Zeros({2})); }).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorOf([&] { SetGrad(x, Zeros({3}, {.dtype = DType::kFloat64})); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { SetGrad(x, Zeros({2})); }).code(), absl::StatusCode::kInvalidArgument);
}

TEST(BackwardTest, AccumulatesIntoLeaves) {
  const Tensor x = Leaf({1, 2, 3}), w = Leaf({4, 5, 6});
  EXPECT_FALSE(Grad(w).defined());
  Backward(Sum(Mul(x, w)));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{4, 5, 6}));
  EXPECT_EQ(Grad(w).ToVector<double>(), (Values{1, 2, 3}));
  const Tensor first = Grad(w);
  Backward(Sum(Mul(x, w)));
  EXPECT_EQ(Grad(w).ToVector<double>(), (Values{2, 4, 6}));
  EXPECT_TRUE(Grad(w).IsSame(first));  // added to in place
  SetGrad(w, {});
  EXPECT_FALSE(Grad(w).defined());
  Backward(Sum(Mul(x, w)));
  EXPECT_EQ(Grad(w).ToVector<double>(), (Values{1, 2, 3}));
}

TEST(BackwardTest, GradientArgument) {
  const Tensor x = Leaf({1, 2, 3});
  Backward(Mul(x, x), {.gradients = {FromVector<double>({1, 10, 100}, {3})}});
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{2, 40, 600}));
}

TEST(BackwardTest, SeveralOutputsAddUp) {
  const Tensor x = Leaf({1, 2, 3});
  const Tensor shared = Mul(x, 2.0);
  Backward({Sum(shared), Sum(Mul(shared, x)), Sum(x)});
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{7, 11, 15}));
}

TEST(BackwardTest, TheGivenGradientIsNotTakenOver) {
  const Tensor x = Leaf({1, 2, 3});
  const Tensor gradient = FromVector<double>({1, 1, 1}, {3});
  Backward(x, {.gradients = {gradient}});
  Backward(x, {.gradients = {gradient}});
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{2, 2, 2}));
  EXPECT_EQ(gradient.ToVector<double>(), (Values{1, 1, 1}));
}

TEST(BackwardTest, OneGradientForTwoLeavesIsTwoTensors) {
  const Tensor a = Leaf({1, 2}), b = Leaf({3, 4});
  Backward(Sum(Add(a, b)));
  EXPECT_NE(Grad(a).storage(), Grad(b).storage());
  Backward(Sum(Mul(a, 3.0)));
  EXPECT_EQ(Grad(b).ToVector<double>(), (Values{1, 1}));
}

TEST(BackwardTest, RefusesWhatDoesNotFit) {
  const Tensor x = Leaf({1, 2, 3});
  const Error elements = ErrorOf([&] { Backward(Mul(x, x)); });
  EXPECT_EQ(elements.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(elements, "[3]")) << elements.what();
  const auto with_gradient = [&](const Tensor& gradient) {
    return ErrorOf([&] { Backward(Mul(x, x), {.gradients = {gradient}}); }).code();
  };
  EXPECT_EQ(with_gradient(Zeros({2}, {.dtype = DType::kFloat64})),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with_gradient(Zeros({3})), absl::StatusCode::kInvalidArgument);  // float32
  EXPECT_EQ(with_gradient(Zeros({3}, {.dtype = DType::kFloat64, .device = Cpu(1)})),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] {
              Backward({Sum(x)}, {.gradients = {{}, {}}});
            }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { Backward(Tensor()); }).code(), absl::StatusCode::kInvalidArgument);
  const Error no_history = ErrorOf([&] { Backward(Sum(Detach(x))); });
  EXPECT_EQ(no_history.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Contains(no_history, "SetRequiresGrad")) << no_history.what();
  const Error not_leaf = ErrorOf([&] {
    const Tensor y = Mul(x, x);
    Backward(Sum(y), {.inputs = {y}});
  });
  EXPECT_EQ(not_leaf.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(not_leaf, "Gradients()")) << not_leaf.what();
  EXPECT_FALSE(Grad(x).defined());
}

TEST(BackwardTest, ASecondTimeNeedsARetainedGraph) {
  const Tensor x = Leaf({1, 2, 3});
  const Tensor y = Sum(Mul(x, x));
  Backward(y, {.retain_graph = true});
  Backward(y);
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{4, 8, 12}));
  const Error error = ErrorOf([&] { Backward(y); });
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Contains(error, "retain_graph")) << error.what();
  EXPECT_TRUE(Contains(error, "Mul")) << error.what();
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{4, 8, 12}));
}

TEST(BackwardTest, APrefixThatSavesNothingServesTwoBackwards) {
  const Tensor x = Leaf({1, 2, 3, 4});
  const Tensor prefix = View(Add(x, 1.0), {2, 2});
  Backward(Sum(Mul(prefix, prefix)));
  Backward(Sum(prefix));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{5, 7, 9, 11}));
}

TEST(BackwardTest, InputsChooseLeaves) {
  const Tensor a = Leaf({1, 2}), b = Leaf({3, 4}), c = Leaf({5, 6});
  Backward(Sum(Mul(Mul(a, b), c)), {.inputs = {b}});
  EXPECT_FALSE(Grad(a).defined());
  EXPECT_FALSE(Grad(c).defined());
  EXPECT_EQ(Grad(b).ToVector<double>(), (Values{5, 12}));
}

TEST(BackwardTest, RetainGradKeepsAnInnerGradient) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = Mul(x, 3.0);
  RetainGrad(y);
  const Tensor z = Sum(Mul(y, y));
  Backward(z, {.retain_graph = true});
  EXPECT_EQ(Grad(y).ToVector<double>(), (Values{6, 12}));
  Backward(z);
  EXPECT_EQ(Grad(y).ToVector<double>(), (Values{12, 24}));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{36, 72}));
}

TEST(BackwardTest, UnusedPiecesOfASplitCountAsZero) {
  const Tensor x = Leaf({1, 2, 3});
  Backward(Sum(Mul(Split(x, 1)[1], 5.0)));
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{0, 5, 0}));
}

TEST(BackwardTest, EmptyAndZeroDimensional) {
  const Tensor empty = SetRequiresGrad(Zeros({0, 3}), true);
  Backward(Sum(Mul(empty, 2.0)));
  EXPECT_EQ(Grad(empty).shape(), (Shape{0, 3}));
  const Tensor scalar = SetRequiresGrad(Full({}, 3.0), true);
  Backward(Mul(scalar, scalar));
  EXPECT_EQ(Grad(scalar).Item<double>(), 6);
}

TEST(BackwardTest, MetaTensorsHaveShapesOnly) {
  const TensorOptions meta = {.device = kMeta};
  const Tensor w = SetRequiresGrad(Empty({5, 3}, meta), true);
  const Tensor x = Empty({2, 3}, meta);
  Backward(Sum(Relu(Linear(x, w))));
  EXPECT_EQ(Grad(w).shape(), (Shape{5, 3}));
  EXPECT_EQ(Grad(w).device(), kMeta);
}

TEST(GradientsTest, LeavesAndOthersUntouched) {
  const Tensor x = Leaf({1, 2, 3});
  const Tensor y = Mul(x, x), z = Sum(Mul(y, 2.0));
  const std::vector<Tensor> gradients = Gradients({z}, {x, y, x});
  EXPECT_EQ(gradients[0].ToVector<double>(), (Values{4, 8, 12}));
  EXPECT_EQ(gradients[1].ToVector<double>(), (Values{2, 2, 2}));
  EXPECT_EQ(gradients[2].ToVector<double>(), (Values{4, 8, 12}));
  EXPECT_FALSE(Grad(x).defined());
}

TEST(GradientsTest, OutputThatIsAnInput) {
  const Tensor x = Leaf({1, 2});
  const Tensor g = FromVector<double>({3, 4}, {2});
  EXPECT_EQ(Gradients({x}, {x}, {.grad_outputs = {g}})[0].ToVector<double>(), (Values{3, 4}));
}

TEST(GradientsTest, UnusedInputs) {
  const Tensor x = Leaf({1, 2}), unused = Leaf({1, 2});
  const Error error = ErrorOf([&] { Gradients({Sum(Mul(x, x))}, {x, unused}); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(error, "input 1")) << error.what();
  EXPECT_TRUE(Contains(error, "allow_unused")) << error.what();
  const auto allowed = Gradients({Sum(Mul(x, x))}, {x, unused}, {.allow_unused = true});
  EXPECT_TRUE(allowed[0].defined());
  EXPECT_FALSE(allowed[1].defined());
  EXPECT_EQ(ErrorOf([&] { Gradients({Sum(x)}, {Zeros({2})}); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { Gradients({Sum(x)}, {}); }).code(), absl::StatusCode::kInvalidArgument);
}

TEST(HigherOrderTest, ThirdDerivativeOfAPower) {
  const Tensor x = Leaf({2});
  const Tensor y = Mul(Mul(x, x), Mul(x, x));
  const Tensor first = Gradients({y}, {x}, {.create_graph = true})[0];
  const Tensor second = Gradients({first}, {x}, {.create_graph = true})[0];
  const Tensor third = Gradients({second}, {x})[0];
  EXPECT_EQ(first.Item<double>(), 32);
  EXPECT_EQ(second.Item<double>(), 48);
  EXPECT_EQ(third.Item<double>(), 48);
}

TEST(HigherOrderTest, ThroughFusedRows) {
  const Tensor x = SetRequiresGrad(FromVector<double>({0.3, -0.7, 1.1, 0.2}, {2, 2}), true);
  const auto loss = [&] {
    return CrossEntropy(LayerNorm(Gelu(x)), FromVector<int64_t>({1, 0}, {2}));
  };
  const Tensor gradient = Gradients({loss()}, {x}, {.create_graph = true})[0];
  const Tensor penalty = Sum(Mul(gradient, gradient));
  Backward(penalty);
  // The derivative of the penalty along one element, by differences of gradients.
  const double step = 1e-5;
  const auto penalty_at = [&](double delta) {
    NoGradScope no_grad;
    FillInPlace(Slice(Slice(x, 0, 1, 2), 1, 0, 1), 1.1 + delta);
    EnableGradScope grad;
    const Tensor g = Gradients({loss()}, {x})[0];
    return Sum(Mul(g, g)).Item<double>();
  };
  const double numeric = (penalty_at(step) - penalty_at(-step)) / (2 * step);
  EXPECT_NEAR(Grad(x).Item<double>({1, 0}), numeric, 1e-6 * (1 + std::abs(numeric)));
  EXPECT_NE(numeric, 0);
}

TEST(HigherOrderTest, AccumulatedGradientsHaveHistory) {
  const Tensor x = Leaf({3});
  Backward(Mul(x, Mul(x, x)), {.create_graph = true});
  EXPECT_TRUE(RequiresGrad(Grad(x)));
  const Tensor gradient = Grad(x);
  SetGrad(x, {});
  Backward(gradient);
  EXPECT_EQ(Grad(x).Item<double>(), 18);
}

TEST(EndOfBackwardTest, RunsAfterTheLastNodeInOrder) {
  EXPECT_FALSE(InBackward());
  EXPECT_EQ(ErrorOf([] { QueueEndOfBackward([] {}); }).code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lockstep::autograd
