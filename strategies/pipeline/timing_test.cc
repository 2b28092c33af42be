// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A pipeline idles as long as the simulation of its schedule says, and takes as long. Stages wait
// instead of computing, so that two processors are as good as four.
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
// What it comes to where nobody else uses the machine. It is printed, and only ten times as much
// fails: other programs delay all that waits.
constexpr double kBubbleSlack = 0.02;
constexpr double kExcess = 0.1;  // of the simulated time
// Others on the machine only make a step longer: one of these is undisturbed.
constexpr int kSteps = 20;

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
    double bubble = 0, ratio = 0;
    bool holds = false;
    for (int step = 0; step < kSteps && !holds; ++step) {
      pipeline.Step({Ones({8, 3})}, {});
      const Timeline measured = pipeline.MeasuredTimeline();
      const double now = measured.makespan_seconds / simulated.makespan_seconds;
      if (step > 0 && now > ratio) continue;
      ratio = now;
      bubble = measured.bubble;
      holds = std::abs(bubble - simulated.bubble) < kBubbleSlack && ratio < 1 + kExcess;
    }
    std::printf("%-12s bubble %.3f, simulated %.3f; %.3f times the simulated %.1f ms\n",
                schedule.name.c_str(), bubble, simulated.bubble, ratio,
                1e3 * simulated.makespan_seconds);
    EXPECT_LT(std::abs(bubble - simulated.bubble), 10 * kBubbleSlack) << schedule.name;
    EXPECT_LT(ratio, 1 + 10 * kExcess) << schedule.name;
  }
}

}  // namespace
}  // namespace lockstep::pipeline
