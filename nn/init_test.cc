// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::nn::init {
namespace {

using ::testing::Each;

double MaxAbs(const Tensor& t) { return Max(Abs(t)).Item<double>(); }

TEST(Init, Constants) {
  const Tensor t = Empty({2, 3});
  EXPECT_THAT(Ones(t).ToVector<float>(), Each(1));
  EXPECT_THAT(Zeros(t).ToVector<float>(), Each(0));
  EXPECT_THAT(Constant(t, 2.5).ToVector<float>(), Each(2.5f));
  EXPECT_TRUE(Constant(t, 1).IsSame(t));
}

TEST(Init, WritesLeavesOutsideTheGraph) {
  const Tensor t = autograd::SetRequiresGrad(Empty({5, 3}), true);
  Normal(t);
  EXPECT_TRUE(autograd::IsLeaf(t));
  EXPECT_TRUE(autograd::RequiresGrad(t));
}

TEST(Init, NormalHasItsMoments) {
  const Tensor t = Empty({100, 100});
  Normal(t, 3, 0.5);
  const std::vector<double> v = t.ToVector<double>();
  const double mean = std::accumulate(v.begin(), v.end(), 0.0) / 1e4;
  double variance = 0;
  for (const double x : v) variance += (x - mean) * (x - mean) / 1e4;
  EXPECT_NEAR(mean, 3, 0.02);
  EXPECT_NEAR(std::sqrt(variance), 0.5, 0.02);
}

TEST(Init, DrawsFromTheParameterStreamOrTheGivenOne) {
  ManualSeed(5);
  const Tensor a = Normal(Empty({7}));
  EXPECT_EQ(ThreadGenerators().parameters.key.offset, 8u);
  const Tensor b = Normal(Empty({7}));
  EXPECT_NE(a.ToVector<float>(), b.ToVector<float>());
  Generator generator{{5, kParameterStream, 0}};
  EXPECT_EQ(Normal(Empty({7}), 0, 1, &generator).ToVector<float>(), a.ToVector<float>());
  EXPECT_EQ(ThreadGenerators().parameters.key.offset, 16u);
}

TEST(Init, Fans) {
  EXPECT_EQ(FansOf(Empty({5, 3})).in, 3);
  EXPECT_EQ(FansOf(Empty({5, 3})).out, 5);
  EXPECT_EQ(FansOf(Empty({5, 3, 2, 2})).in, 12);
  EXPECT_EQ(FansOf(Empty({5, 3, 2, 2})).out, 20);
  EXPECT_THROW(FansOf(Empty({5})), Error);
}

TEST(Init, UniformBounds) {
  // sqrt(6 / (6 * fan)) for a = sqrt(5): PyTorch's Linear.
  double bound = 1 / std::sqrt(25.0);
  double largest = MaxAbs(KaimingUniform(Empty({400, 25}), {.a = std::sqrt(5.0)}));
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.99 * bound);
  bound = std::sqrt(6.0 / 400);
  largest = MaxAbs(KaimingUniform(Empty({400, 25}), {.fan_out = true}));
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.99 * bound);
  bound = 3 * std::sqrt(6.0 / 425);
  largest = MaxAbs(XavierUniform(Empty({400, 25}), 3));
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.99 * bound);
}

TEST(Init, EmptyWeights) {
  EXPECT_EQ(KaimingUniform(Empty({4, 0})).numel(), 0);
  EXPECT_EQ(XavierUniform(Empty({0, 0})).numel(), 0);
}

TEST(Init, RefusesWhatItCannotFill) {
  EXPECT_THROW(Normal(Empty({3}, {.dtype = DType::kInt64, .device = {}})), Error);
  EXPECT_THROW(Normal(Empty({3}), 0, -1), Error);
  EXPECT_THROW(Uniform(Empty({3}), 2, 1), Error);
}

}  // namespace
}  // namespace lockstep::nn::init
