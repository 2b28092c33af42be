// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A pipeline idles as long as the simulation of its schedule says. Stages wait instead of
// computing, so that two processors are as good as four.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/simulate.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::pipeline {
namespace {

constexpr absl::Duration kWait = absl::Milliseconds(5);
constexpr double kWanted = 0.05;
constexpr double kSlack = 10;  // machines are shared: the figures say the rest

// As long for the forward, for the gradient of the input and for that of the weight.
class Waiting : public nn::UnaryModule {
 public:
  Waiting() {
    RegisterParameter("weight", &weight_, Ones({}));
    autograd::RegisterPostAccumulateGradHook(weight_, [](const Tensor&) { absl::SleepFor(kWait); });
  }
  Tensor Forward(const Tensor& x) override {
    absl::SleepFor(kWait);
    const Tensor y = Mul(x, weight_);
    autograd::RegisterHook(y, [](const Tensor&) {
      absl::SleepFor(kWait);
      return Tensor();
    });
    return y;
  }

 private:
  Tensor weight_;
};

TEST(PipelineTiming, TheBubbleIsTheSimulatedOne) {
  const double wait = absl::ToDoubleSeconds(kWait);
  for (const Schedule& schedule :
       {GPipe(4, 8), OneForwardOneBackward(4, 8), ZeroBubbleH1(4, 8), Interleaved(2, 2, 4)}) {
    std::vector<Stage> stages;
    for (int s = 0; s < schedule.stage_count(); ++s) {
      stages.push_back(MakeStage(std::to_string(s), std::make_shared<Waiting>()));
    }
    Pipeline pipeline(std::move(stages),
                      {.schedule = schedule,
                       .loss = [](TensorSpan outputs, TensorSpan) { return Mean(outputs[0]); }});
    const Timeline simulated =
        Simulate(schedule, UniformCosts(schedule.stage_count(), {wait, wait, wait}));
    // The first step has what only happens once.
    pipeline.Step({Ones({8, 3})}, {});
    pipeline.Step({Ones({8, 3})}, {});
    const Timeline measured = pipeline.MeasuredTimeline();
    std::printf("%-12s bubble %.3f, simulated %.3f; %.1f ms, simulated %.1f ms\n",
                schedule.name.c_str(), measured.bubble, simulated.bubble,
                1e3 * measured.makespan_seconds, 1e3 * simulated.makespan_seconds);
    EXPECT_LT(std::abs(measured.bubble - simulated.bubble), kSlack * kWanted) << schedule.name;
  }
}

}  // namespace
}  // namespace lockstep::pipeline
