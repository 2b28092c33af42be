// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Mixed precision trains as float32 does: GPT nano, in the soak run mini.

#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tests/equivalence/gpt_training.h"

namespace lockstep::equivalence {
namespace {

constexpr int64_t kSteps = 200;

GptTraining Training(const std::string& amp) {
  return {.config = models::Gpt2Preset(IsSoakRun() ? "mini" : "nano"),
          .rows = 4,
          .steps = kSteps,
          .amp = amp};
}

const GptOutcome& Outcome(const std::string& amp) {
  static auto& outcomes = *new std::map<std::string, GptOutcome>;
  auto found = outcomes.find(amp);
  if (found == outcomes.end()) found = outcomes.emplace(amp, TrainGpt(Training(amp))).first;
  return found->second;
}

double Cosine(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.ToVector<double>(), y = b.ToVector<double>();
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += x[i] * x[i];
    yy += y[i] * y[i];
    xy += x[i] * y[i];
  }
  return xy / std::sqrt(xx * yy);
}

class AmpConvergence : public testing::TestWithParam<std::string> {};

TEST_P(AmpConvergence, LossIsWithinOnePercentOfFloat32) {
  const GptOutcome& wide = Outcome("");
  const GptOutcome& low = Outcome(GetParam());
  std::printf("%s: loss %.5f, float32 %.5f, first %.5f, skipped %d\n", GetParam().c_str(),
              low.LastLoss(20), wide.LastLoss(20), wide.losses[0], static_cast<int>(low.skipped));
  // It has learnt something, or equality would say nothing.
  EXPECT_LT(wide.LastLoss(20), 0.75 * wide.losses[0]);
  EXPECT_NEAR(low.LastLoss(20) / wide.LastLoss(20), 1, 0.01);
  EXPECT_NE(low.losses[0], wide.losses[0]) << "computed in float32";
  EXPECT_LE(low.skipped, 3);
}

TEST_P(AmpConvergence, FirstGradientsPointTheSameWay) {
  const GptOutcome& wide = Outcome("");
  double least = 1;
  for (const auto& [name, gradient] : Outcome(GetParam()).first_gradients) {
    const double cosine = Cosine(gradient, wide.first_gradients.At(name));
    least = std::min(least, cosine);
    EXPECT_GE(cosine, 0.9999) << name;
  }
  std::printf("%s: least cosine %.6f\n", GetParam().c_str(), least);
}

INSTANTIATE_TEST_SUITE_P(Precisions, AmpConvergence,
                         testing::Values("bf16", "fp16", "pure_bf16", "pure_fp16"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep::equivalence
