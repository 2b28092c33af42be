// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/clip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::optim {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

Tensor WithGradient(const std::vector<float>& gradient, Device device = Cpu(0)) {
  const Shape shape{static_cast<int64_t>(gradient.size())};
  const TensorOptions options{.dtype = DType::kFloat32, .device = device};
  const Tensor w = autograd::SetRequiresGrad(Zeros(shape, options), true);
  autograd::SetGrad(w, FromVector<float>(gradient, shape, options));
  return w;
}

TEST(ClipGradNorm, ScalesByOneNormOverAll) {
  const Tensor a = WithGradient({3}), b = WithGradient({0, 4});
  const Tensor none = autograd::SetRequiresGrad(Zeros({2}), true);
  const Tensor norm = ClipGradNorm(std::vector<Tensor>{a, none, b}, 1);
  EXPECT_FLOAT_EQ(norm.Item<float>(), 5);
  EXPECT_FLOAT_EQ(autograd::Grad(a).Item<float>(), 0.59999988f);
  EXPECT_FLOAT_EQ(autograd::Grad(b).Item<float>({1}), 0.79999984f);
  EXPECT_FALSE(autograd::Grad(none).defined());
}

TEST(ClipGradNorm, LeavesSmallGradients) {
  const Tensor a = WithGradient({3, 4});
  EXPECT_FLOAT_EQ(ClipGradNorm(std::vector<Tensor>{a}, 6).Item<float>(), 5);
  EXPECT_THAT(autograd::Grad(a).ToVector<float>(), ElementsAre(3, 4));
  EXPECT_FLOAT_EQ(
      ClipGradNorm(std::vector<Tensor>{a}, 6, {.kind = NormKind::kInfinity}).Item<float>(), 4);
}

TEST(ClipGradNorm, SpansDevices) {
  const Tensor a = WithGradient({3}), b = WithGradient({4}, Cpu(1));
  const std::vector<Tensor> both = {a, b};
  EXPECT_FLOAT_EQ(ClipGradNorm(both, 10, {.kind = NormKind::kInfinity}).Item<float>(), 4);
  const Tensor norm = ClipGradNorm(both, 1);
  EXPECT_FLOAT_EQ(norm.Item<float>(), 5);
  EXPECT_EQ(norm.device(), Cpu(0));
  EXPECT_FLOAT_EQ(autograd::Grad(b).Item<float>(), 0.79999984f);
}

// sqrt(6), of which the sum of the squares of three float32 sqrt(2) is not the root.
TEST(ClipGradNorm, DoesNotDependOnWhichGradientIsWhere) {
  for (const int devices : {1, 2, 3}) {
    std::vector<Tensor> parameters;
    for (int i = 0; i < 3; ++i) parameters.push_back(WithGradient({1, 1}, Cpu(i % devices)));
    const Tensor norm = ClipGradNorm(parameters, 10);
    EXPECT_EQ(norm.dtype(), DType::kFloat32);
    EXPECT_EQ(norm.Item<float>(), std::sqrt(6.0f)) << devices;
  }
}

TEST(ClipGradNorm, NothingToClip) { EXPECT_EQ(ClipGradNorm({}, 1).Item<float>(), 0); }

TEST(ClipGradNorm, Errors) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor a = WithGradient({nan, 4});
  EXPECT_THROW(ClipGradNorm(std::vector<Tensor>{a}, 1, {.error_if_nonfinite = true}), Error);
  EXPECT_EQ(autograd::Grad(a).Item<float>({1}), 4);
  EXPECT_TRUE(std::isnan(ClipGradNorm(std::vector<Tensor>{a}, 1).Item<float>()));
  EXPECT_THROW(ClipGradNorm(std::vector<Tensor>{a}, -1), Error);
  EXPECT_THROW(ClipGradNorm(std::vector<Tensor>{a}, nan), Error);
}

TEST(ClipGradsWithNorm, ScalesByTheNormThatIsGiven) {
  const Tensor a = WithGradient({3, 4}), b = WithGradient({1}, Cpu(1));
  const Tensor none = autograd::SetRequiresGrad(Zeros({2}), true);
  ClipGradsWithNorm("Half", std::vector<Tensor>{a, none, b}, Full({}, 10.0), 5, {});
  EXPECT_FLOAT_EQ(autograd::Grad(a).Item<float>({1}), 2);
  EXPECT_FLOAT_EQ(autograd::Grad(b).Item<float>(), 0.5f);
  ClipGradsWithNorm("Half", {}, Full({}, 10.0), 5, {});
}

TEST(ClipGradsWithNorm, ErrorsNameTheCallAndScaleNothing) {
  const Tensor a = WithGradient({3, 4});
  const auto clip = [&](double norm, double max_norm) {
    return MessageOf([&] {
      ClipGradsWithNorm("Half", std::vector<Tensor>{a}, Full({}, norm), max_norm,
                        {.error_if_nonfinite = true});
    });
  };
  EXPECT_THAT(clip(std::numeric_limits<double>::infinity(), 1),
              StartsWith("Half: the norm of the gradients is inf; nothing was scaled"));
  EXPECT_THAT(clip(10, -1), StartsWith("Half: max_norm is -1"));
  EXPECT_THAT(MessageOf([] { CheckMaxNorm("Half", -1); }), StartsWith("Half: max_norm is -1"));
  EXPECT_THAT(autograd::Grad(a).ToVector<float>(), ElementsAre(3, 4));
}

TEST(ClipGradValue, Clamps) {
  const Tensor a = WithGradient({-3, 0.5f, 7});
  ClipGradValue(std::vector<Tensor>{a}, 2);
  EXPECT_THAT(autograd::Grad(a).ToVector<float>(), ElementsAre(-2, 0.5f, 2));
  EXPECT_THROW(ClipGradValue(std::vector<Tensor>{a}, -2), Error);
}

}  // namespace
}  // namespace lockstep::optim
