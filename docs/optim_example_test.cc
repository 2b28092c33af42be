// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of optim.md.

#include <gtest/gtest.h>

#include <string>

#include "lockstep/autograd/backward.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

TEST(OptimExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/optim.md", "docs/optim_example_test.cc");
}

TEST(OptimExample, TrainsAndResumes) {
  ManualSeed(1);
  models::Mlp model({.sizes = {3, 8, 2}});
  const Tensor x = RandomNormal({5, 3}), y = RandomNormal({5, 2});
  const int steps = 60;
  const double before = MseLoss(model(x), y).Item<double>();
  optim::AdamW optimizer(model.NamedParameters(),
                         {.lr = 2e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1});
  optim::Schedule schedule(
      &optimizer,
      optim::WarmupCosine({.warmup_steps = 50, .total_steps = 2200, .final_fraction = 0.1}));
  for (int step = 0; step < steps; ++step) {
    optimizer.ZeroGrad();
    const Tensor loss = MseLoss(model(x), y);
    autograd::Backward(loss);
    optim::ClipGradNorm(model.Parameters(), 1.0);
    optimizer.Step();
    schedule.Step();
  }
  EXPECT_LT(MseLoss(model(x), y).Item<double>(), before);

  const optim::OptimizerState moments = optimizer.SaveState();
  const optim::OptimizerState position = schedule.SaveState();
  optim::AdamW resumed(model.NamedParameters(), optimizer.options());
  optim::Schedule resumed_schedule(
      &resumed,
      optim::WarmupCosine({.warmup_steps = 50, .total_steps = 2200, .final_fraction = 0.1}));
  resumed_schedule.LoadState(position);
  resumed.LoadState(moments);
  EXPECT_EQ(resumed.LearningRate(), optimizer.LearningRate());
  EXPECT_EQ(resumed.SaveState().numbers, optimizer.SaveState().numbers);
}

TEST(OptimExample, Groups) {
  models::Mlp model({.sizes = {3, 8, 2}});
  const NamedTensors all = model.NamedParameters();
  const auto is_matrix = [](const std::string&, const Tensor& t) { return t.rank() >= 2; };
  const auto is_vector = [](const std::string&, const Tensor& t) { return t.rank() < 2; };
  optim::AdamW grouped({{all.Filter(is_matrix), {.weight_decay = 0.1}},
                        {all.Filter(is_vector), {.weight_decay = 0}}});
  grouped.options(1).lr = 1e-4;
  EXPECT_EQ(grouped.LearningRate(1), 1e-4);
  EXPECT_EQ(grouped.parameters().size(), 4u);
}

}  // namespace
}  // namespace lockstep
