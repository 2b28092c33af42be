// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of optim.md.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "lockstep/autograd/backward.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/nn/optim/ema.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/nn/optim/schedules/combine.h"
#include "lockstep/nn/optim/schedules/cosine.h"
#include "lockstep/nn/optim/schedules/factor.h"
#include "lockstep/nn/optim/schedules/one_cycle.h"
#include "lockstep/nn/optim/schedules/reduce_on_plateau.h"
#include "lockstep/nn/optim/sgd.h"
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

void Train(models::Mlp& model, optim::Optimizer& optimizer, const Tensor& x, const Tensor& y) {
  optimizer.ZeroGrad();
  autograd::Backward(MseLoss(model(x), y));
  optimizer.Step();
}

TEST(OptimExample, Schedules) {
  ManualSeed(1);
  models::Mlp model({.sizes = {3, 8, 2}});
  const Tensor x = RandomNormal({5, 3}), y = RandomNormal({5, 2});
  optim::Sgd sgd(model.NamedParameters(), {.lr = 0.1, .momentum = 0.9});
  optim::Schedule halving(&sgd, [](int64_t step) { return std::pow(0.5, step / 100); });
  EXPECT_EQ(sgd.LearningRate(), 0.1);

  optim::Schedule warm(
      &sgd, optim::SequentialLr({optim::LinearLr({.start_factor = 0.1, .total_iters = 100}),
                                 optim::CosineAnnealingLr({.t_max = 900})},
                                {100}));
  optim::Schedule cycle(&sgd, optim::OneCycleLr({.total_steps = 1000}));
  EXPECT_NEAR(sgd.LearningRate(), 0.1 / 25, 1e-12);

  optim::ReduceLrOnPlateau plateau(&sgd, {.factor = 0.5, .patience = 3});
  for (int epoch = 0; epoch < 10; ++epoch) {
    plateau.Step(MseLoss(model(x), y).Item<double>());
  }
  EXPECT_DOUBLE_EQ(sgd.LearningRate(), 0.1 / 4);
}

TEST(OptimExample, Averages) {
  ManualSeed(1);
  models::Mlp model({.sizes = {3, 8, 2}});
  const Tensor x = RandomNormal({5, 3}), y = RandomNormal({5, 2});
  optim::Sgd sgd(model.NamedParameters(), {.lr = 0.1, .momentum = 0.9});
  double validation = 0;
  optim::Ema ema(model, {.decay = 0.999});
  for (int step = 0; step < 10; ++step) {
    Train(model, sgd, x, y);
    ema.Update();
  }
  {
    optim::Ema::Scope averages(ema);
    validation = MseLoss(model(x), y).Item<double>();
  }
  EXPECT_NE(validation, MseLoss(model(x), y).Item<double>());
}

}  // namespace
}  // namespace lockstep
