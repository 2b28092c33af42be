// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// What 16-bit numbers must not lose: sums that stall, masks that turn to NaN, updates that vanish.

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::amp {
namespace {

using autograd::Backward;
using autograd::Grad;
using autograd::SetRequiresGrad;
using testing::Each;
using testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr DType kLow[] = {DType::kBFloat16, DType::kFloat16};

std::vector<float> Floats(const Tensor& x) { return To(x, DType::kFloat32).ToVector<float>(); }

TEST(LowPrecision, SumsDoNotStall) {
  for (const DType dtype : kLow) {
    const TensorOptions options{.dtype = dtype};
    EXPECT_EQ(Sum(Ones({512}, options)).Item<float>(), 512) << "256 in 8 bits of fraction";
    EXPECT_EQ(Sum(Ones({3, 512}, options), {1}).Item<float>({2}), 512);
    EXPECT_EQ(Sum(Ones({512, 3}, options), {0}).Item<float>({1}), 512);
    EXPECT_EQ(Mean(Ones({4096}, options)).Item<float>(), 1);
    EXPECT_THAT(Floats(Softmax(Zeros({512}, options), 0)), Each(0.001953125f));
    // Through the contraction kernels, large and small.
    EXPECT_EQ(MatMul(Ones({1, 512}, options), Ones({512, 1}, options)).Item<float>(), 512);
    const Tensor large = MatMul(Ones({128, 2048}, options), Ones({2048, 128}, options));
    EXPECT_THAT(Floats(large), Each(2048.0f));
    const Tensor weight = Ones({512}, options);
    EXPECT_THAT(Floats(LayerNorm(Ones({2, 512}, options), weight, weight)), Each(1.0f));
  }
}

TEST(LowPrecision, MaskedRowsAreZerosWithZeroGradients) {
  for (const DType dtype : kLow) {
    const auto leaf = [dtype] {
      return SetRequiresGrad(Ones({1, 1, 2, 4}, {.dtype = dtype}), true);
    };
    const Tensor q = leaf(), k = leaf(), v = leaf();
    // Row 0 may attend to nothing, row 1 to column 1.
    const Tensor mask = To(FromVector<int64_t>({0, 0, 0, 1}, {2, 2}), DType::kBool);
    const Tensor y = ScaledDotProductAttention(q, k, v, {.mask = mask});
    EXPECT_THAT(Floats(y), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
    Backward(Sum(y));
    EXPECT_THAT(Floats(Grad(q)), Each(0.0f));
    EXPECT_THAT(Floats(Grad(v)), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
    for (const float g : Floats(Grad(k))) EXPECT_TRUE(std::isfinite(g));
  }
}

// Scores plus a mask leave float16's range: -65504 - 16 is -inf there.
TEST(LowPrecision, AddedMasksAtTheEndOfTheRange) {
  for (const DType dtype : kLow) {
    const Tensor q = Full({1, 1, 2, 4}, -2.0, {.dtype = dtype});
    const Tensor k = Full({1, 1, 2, 4}, 4.0, {.dtype = dtype});
    const Tensor v = Ones({1, 1, 2, 4}, {.dtype = dtype});
    const double lowest = dtype == DType::kFloat16 ? -65504 : -3.3895314e38;
    const Tensor mask = Full({2, 2}, lowest, {.dtype = dtype});
    const Tensor y = ScaledDotProductAttention(q, k, v, {.mask = mask});
    for (const float value : Floats(y)) EXPECT_TRUE(std::isfinite(value)) << DTypeName(dtype);
  }
}

TEST(LowPrecision, SoftmaxOfInfinities) {
  for (const DType dtype : kLow) {
    const Tensor x = SetRequiresGrad(To(FromVector<float>({0, -kInfinity}, {2}), dtype), true);
    const Tensor y = Softmax(x, 0);
    EXPECT_THAT(Floats(y), ElementsAre(1, 0));
    Backward(Sum(Mul(y, FromVector<float>({3, 5}, {2}))));
    EXPECT_THAT(Floats(Grad(x)), ElementsAre(0, 0));
    // A row of nothing but -inf is NaN, as in PyTorch.
    const Tensor nothing = Softmax(Full({2}, -kInfinity, {.dtype = dtype}), 0);
    for (const float value : Floats(nothing)) EXPECT_TRUE(std::isnan(value));
  }
}

// A number out of the range of the dtype becomes infinite, as in PyTorch.
TEST(LowPrecision, FillValuesOutOfRange) {
  EXPECT_EQ(Full({1}, -1e9, {.dtype = DType::kFloat16}).Item<float>({0}), -kInfinity);
  EXPECT_EQ(Full({1}, -1e9, {.dtype = DType::kBFloat16}).Item<float>({0}), -998244352.0f);
}

// float32 master weights under autocast take steps that the 16-bit weight cannot show.
TEST(LowPrecision, SmallUpdatesReachMasterWeights) {
  const Tensor w = SetRequiresGrad(Ones({1, 1}), true);
  optim::Sgd optimizer({{"w", w}}, {.lr = 1e-3});
  const Tensor x = Ones({1, 1});
  for (int i = 0; i < 100; ++i) {
    optimizer.ZeroGrad();
    Tensor y;
    {
      const Autocast autocast;
      y = Linear(x, w);
    }
    Backward(Sum(y));
    optimizer.Step();
  }
  EXPECT_NEAR(w.Item<float>({0, 0}), 0.9, 2e-6);
  const Autocast autocast;
  EXPECT_EQ(To(Linear(x, w), DType::kFloat32).Item<float>({0, 0}), 0.8984375);
}

}  // namespace
}  // namespace lockstep::amp
