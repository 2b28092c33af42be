// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of amp.md.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "lockstep/amp/autocast.h"
#include "lockstep/amp/non_finite/find_non_finite.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/amp/training/training_step.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/nn/optim/schedules/cosine.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep {
namespace {

TEST(AmpExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/amp.md", "docs/amp_example_test.cc");
}

TEST(AmpExample, Casts) {
  ManualSeed(1);
  auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {3, 8, 2}});
  const Tensor inputs = Reshape(Arange(24.0), {8, 3}) * 0.1;
  Tensor y;
  {
    amp::Autocast autocast;  // bfloat16 on the CPU
    y = (*model)(inputs);
  }
  EXPECT_EQ(y.dtype(), DType::kBFloat16);
  autograd::Backward(Sum(y));  // parameters and their gradients are float32
  for (const Tensor& parameter : model->Parameters()) {
    EXPECT_EQ(autograd::Grad(parameter).dtype(), DType::kFloat32);
  }
}

TEST(AmpExample, ScalesStepsAndSearches) {
  ManualSeed(1);
  auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {3, 8, 2}});
  optim::AdamW optimizer(model->NamedParameters(), {.lr = 1e-2});
  const Tensor inputs = Reshape(Arange(24.0), {8, 3}) * 0.1;
  const Tensor targets = Reshape(Arange(16.0), {8, 2}) * 0.05;

  amp::GradScaler scaler;
  Tensor loss;
  {
    amp::Autocast autocast({.dtype = DType::kFloat16});
    loss = MseLoss((*model)(inputs), targets);
  }
  autograd::Backward(scaler.Scale(loss));
  scaler.UnscaleGradients(optimizer);  // from here on gradients are true ones
  optim::ClipGradNorm(model->Parameters(), 1.0);
  const bool stepped = scaler.Step(optimizer);  // false: a gradient was infinite or NaN
  scaler.Update();                              // once, after all optimizers
  EXPECT_TRUE(stepped);
  EXPECT_EQ(scaler.growth_tracker(), 1);

  optim::Schedule schedule(&optimizer,
                           optim::WarmupCosine({.warmup_steps = 2, .total_steps = 100}));
  amp::TrainingStep training({.optimizers = {{&optimizer, &schedule}},
                              .module = model.get(),
                              .autocast = amp::AutocastOptions{.dtype = DType::kFloat16},
                              .scaler = &scaler,
                              .clip_norm = 1.0,
                              .micro_batches = 4});
  const amp::StepReport report = training.Run([&](int64_t i) {
    const Tensor x = Slice(inputs, 0, 2 * i, 2 * i + 2);
    const Tensor y = Slice(targets, 0, 2 * i, 2 * i + 2);
    return MseLoss((*model)(x), y);
  });
  if (!report.stepped) std::printf("%s\n", report.ToString().c_str());
  EXPECT_TRUE(report.stepped);
  EXPECT_GT(report.grad_norm.value_or(0), 0);
  EXPECT_EQ(schedule.step(), 1);
  EXPECT_EQ(scaler.growth_tracker(), 2);

  const Tensor labels = FromVector<int64_t>({0, 1, -100, -100, -100, 1}, {6});
  const std::vector<double> tokens = {2, 0, 1};  // labels that are not -100
  training.RunWeighted(
      [&](int64_t i) {
        const Tensor logits = (*model)(Slice(inputs, 0, 2 * i, 2 * i + 2));
        return CrossEntropy(logits, Slice(labels, 0, 2 * i, 2 * i + 2));
      },
      tokens);
  EXPECT_EQ(schedule.step(), 2);

  const auto found =
      amp::FindNonFinite([&] { autograd::Backward(Sum(Sqrt((*model)(inputs)*0.0))); }, model.get());
  if (found) std::printf("%s\n", found->ToString().c_str());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "Div");
}

}  // namespace
}  // namespace lockstep
