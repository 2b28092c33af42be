// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/split_backward.h"

#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd {
namespace {

Tensor Data(const Shape& shape, int seed) {
  Generator generator{{static_cast<uint64_t>(seed), 0, 0}};
  return RandomUniform(shape, -1, 1, {.generator = &generator});
}

struct Stage {
  Tensor input = SetRequiresGrad(Data({3, 5}, 1), true);
  Tensor w1 = SetRequiresGrad(Data({7, 5}, 2), true);
  Tensor b1 = SetRequiresGrad(Data({7}, 3), true);
  Tensor w2 = SetRequiresGrad(Data({2, 7}, 4), true);
  Tensor scale = SetRequiresGrad(Data({2}, 5), true);
  Tensor unrelated = SetRequiresGrad(Data({3, 2}, 6), true);

  Tensor Forward() const {
    const Tensor h = Gelu(Linear(input, w1, b1));
    // The weight goes through an op of its own, which belongs to the second half.
    return Add(Mul(Linear(h, Mul(w2, 2.0)), scale), Exp(unrelated));
  }
  std::vector<Tensor> weights() const { return {w1, b1, w2, scale, unrelated}; }
};

TEST(SplitBackwardTest, BothHalvesMakeTheWholeBitwise) {
  const Stage whole, split;
  const Tensor g = Data({3, 2}, 9);
  Backward(whole.Forward(), {.gradients = {g}});
  SplitBackward backward({split.Forward()}, {split.input}, {.gradients = {g}});
  const std::vector<Tensor> grad_input = backward.RunInputs();
  ASSERT_EQ(grad_input.size(), 1u);
  EXPECT_EQ(grad_input[0].ToVector<float>(), Grad(whole.input).ToVector<float>());
  for (const Tensor& weight : split.weights()) EXPECT_FALSE(Grad(weight).defined());
  backward.RunWeights();
  for (size_t i = 0; i < split.weights().size(); ++i) {
    EXPECT_EQ(Grad(split.weights()[i]).ToVector<float>(),
              Grad(whole.weights()[i]).ToVector<float>())
        << i;
  }
  EXPECT_FALSE(Grad(split.input).defined());
}

TEST(SplitBackwardTest, SavedTensorsGoAfterTheSecondHalf) {
  const int64_t before = SavedBytes();
  const Stage stage;
  SplitBackward backward({Sum(stage.Forward())}, {stage.input});
  const int64_t full = SavedBytes() - before;
  backward.RunInputs();
  const int64_t half = SavedBytes() - before;
  EXPECT_GT(full, half);
  EXPECT_GT(half, 0);
  backward.RunWeights();
  EXPECT_EQ(SavedBytes(), before);
}

TEST(SplitBackwardTest, HooksRunOnce) {
  const Stage stage;
  const Tensor y = Mul(stage.Forward(), 1.0);
  int inner = 0, leaf = 0, input = 0;
  RegisterHook(y, [&](const Tensor&) { return ++inner, Tensor(); });
  RegisterPostAccumulateGradHook(stage.w1, [&](const Tensor&) { ++leaf; });
  RegisterHook(stage.input, [&](const Tensor&) { return ++input, Tensor(); });
  SplitBackward backward({Sum(y)}, {stage.input});
  backward.RunInputs();
  EXPECT_EQ(leaf, 0);
  EXPECT_EQ(input, 1);
  backward.RunWeights();
  EXPECT_EQ(inner, 1);
  EXPECT_EQ(leaf, 1);
  EXPECT_EQ(input, 1);
}

TEST(SplitBackwardTest, AnOutputThatDoesNotDependOnTheInput) {
  const Stage stage;
  SplitBackward backward({Sum(Mul(stage.w1, stage.w1))}, {stage.input});
  EXPECT_FALSE(backward.RunInputs()[0].defined());
  EXPECT_FALSE(Grad(stage.w1).defined());
  backward.RunWeights();
  EXPECT_TRUE(Grad(stage.w1).defined());
}

TEST(SplitBackwardTest, InputsWithHistory) {
  const Stage stage;
  const Tensor h = Mul(stage.input, 2.0);
  SplitBackward backward({Sum(Mul(h, h))}, {h});
  EXPECT_EQ(backward.RunInputs()[0].ToVector<float>(), Mul(h, 2.0).ToVector<float>());
}

TEST(SplitBackwardTest, EachHalfOnceAndInOrder) {
  const Stage stage;
  SplitBackward backward({Sum(stage.Forward())}, {stage.input});
  EXPECT_THROW(backward.RunWeights(), Error);
  backward.RunInputs();
  EXPECT_THROW(backward.RunInputs(), Error);
  backward.RunWeights();
  EXPECT_THROW(backward.RunWeights(), Error);
  EXPECT_THROW(SplitBackward({Sum(stage.Forward())}, {}), Error);
  EXPECT_THROW(SplitBackward({Sum(stage.Forward())}, {Data({2}, 1)}), Error);
  EXPECT_THROW(SplitBackward({stage.Forward()}, {stage.input}), Error);
}

}  // namespace
}  // namespace lockstep::autograd
