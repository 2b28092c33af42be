// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Loss and gradients are those of the whole batch, whatever the micro-batches and the rounds.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/testing.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::pipeline {
namespace {

using testing_util::CutEvenly;
using testing_util::GradientsOf;
using testing_util::Inputs;
using testing_util::MakeMlp;
using testing_util::MseOf;
using testing_util::Targets;

// Multiplies by one number.
class Scale : public nn::UnaryModule {
 public:
  explicit Scale(double value) { RegisterParameter("weight", &weight, Full({}, value)); }
  Tensor Forward(const Tensor& x) override { return Mul(x, weight); }
  Tensor weight;
};

Tensor MeanOf(TensorSpan outputs, TensorSpan /*targets*/) { return Mean(outputs[0]); }

// w * x in stage 0 and stages that hand it on.
struct ScalePipeline {
  ScalePipeline(const Schedule& schedule, PipelineOptions options = {})
      : scale(std::make_shared<Scale>(1.0)), pipeline(Stages(schedule), [&] {
          options.schedule = schedule;
          if (options.loss == nullptr) options.loss = MeanOf;
          return options;
        }()) {}
  std::vector<Stage> Stages(const Schedule& schedule) const {
    std::vector<Stage> stages = {MakeStage("scale", scale)};
    for (int s = 1; s < schedule.stage_count(); ++s) {
      stages.push_back({.forward = [](TensorSpan in) -> TensorList { return {Mul(in[0], 1.0)}; }});
    }
    return stages;
  }
  float Gradient() const { return autograd::Grad(scale->weight).Item<float>(); }

  std::shared_ptr<Scale> scale;
  Pipeline pipeline;
};

// Field report P-1: any number of micro-batches from 1, fewer than stages too.
TEST(PipelineLoss, FourStagesRunAnyNumberOfMicroBatches) {
  const Stopwatch watch;
  for (const int micro_batches : {1, 2, 3, 5, 8}) {
    for (const Schedule& schedule :
         {GPipe(4, micro_batches), OneForwardOneBackward(4, micro_batches)}) {
      SCOPED_TRACE(ToText(schedule));
      const auto model = MakeMlp(8), whole = MakeMlp(8);
      Pipeline pipeline(CutEvenly(*model, 4), {.schedule = schedule, .loss = MseOf});
      const StepResult result = pipeline.Step({Inputs(0, 9)}, {Targets(0, 9)});
      const Tensor loss = MseLoss((*whole)(Inputs(0, 9)), Targets(0, 9));
      autograd::Backward(loss);
      EXPECT_NEAR(result.loss, loss.Item<double>(), 1e-6 * loss.Item<double>());
      EXPECT_EQ(result.losses.size(), static_cast<size_t>(micro_batches));
      for (const auto& [name, wanted] : GradientsOf(*whole)) {
        const std::vector<float> got = GradientsOf(pipeline.module())[name];
        ASSERT_EQ(got.size(), wanted.size()) << name;
        for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6) << name;
      }
    }
  }
  EXPECT_LT(watch.ElapsedSeconds(), 100) << "10 s wanted for the slowest of them";
}

// Field report P-1: a mean of means would be 4.8333.
TEST(PipelineLoss, MicroBatchesCountByTheirRows) {
  ScalePipeline scaled(OneForwardOneBackward(2, 3));
  const Tensor x = Arange(1.0, 9.0);
  const StepResult result = scaled.pipeline.Step({x}, {});
  EXPECT_FLOAT_EQ(scaled.Gradient(), 4.5f);
  EXPECT_DOUBLE_EQ(result.loss, 4.5);
  EXPECT_EQ(result.losses, (std::vector<double>{2, 5, 7.5}));
}

// Field report P-2: repeated rescaling would give 1.25.
TEST(PipelineLoss, RoundsAddUp) {
  ScalePipeline scaled(OneForwardOneBackward(2, 4));
  scaled.pipeline.Step({Ones({8, 4})}, {});
  EXPECT_FLOAT_EQ(scaled.Gradient(), 1.0f);
  // Another length of the sequence, and another number of rows.
  scaled.pipeline.Step({Ones({12, 6})}, {});
  EXPECT_FLOAT_EQ(scaled.Gradient(), 2.0f);
  scaled.pipeline.module().ZeroGrad();
  scaled.pipeline.Step({Ones({5, 3})}, {});
  EXPECT_FLOAT_EQ(scaled.Gradient(), 1.0f);
}

// Field report L-4: one token of gradient 4 and three of 0 are a mean of 1.
TEST(PipelineLoss, WeightsCountTokens) {
  PipelineOptions options;
  options.loss = [](TensorSpan outputs, TensorSpan targets) {
    return Div(Sum(Mul(outputs[0], targets[0])), Sum(targets[0]));
  };
  options.weight = [](TensorSpan targets) { return Sum(targets[0]).Item<double>(); };
  ScalePipeline scaled(GPipe(2, 2), options);
  const Tensor x = FromVector<float>({4, 9, 9, 0, 0, 0}, {2, 3});
  const Tensor mask = FromVector<float>({1, 0, 0, 1, 1, 1}, {2, 3});
  const StepResult result = scaled.pipeline.Step({x}, {mask});
  EXPECT_FLOAT_EQ(scaled.Gradient(), 1.0f);
  EXPECT_DOUBLE_EQ(result.loss, 1.0);
}

TEST(PipelineLoss, WhatDoesNotCountMayBeNaN) {
  PipelineOptions options;
  options.loss = [](TensorSpan outputs, TensorSpan targets) {
    return CrossEntropy(outputs[0], targets[0]);
  };
  options.weight = [](TensorSpan targets) {
    return Sum(To(GreaterEqual(targets[0], 0), DType::kFloat32)).Item<double>();
  };
  ScalePipeline scaled(GPipe(2, 2), options);
  const Tensor x = FromVector<float>({1, 2, 3, 4, 5, 7}, {2, 3});
  const Tensor targets = FromVector<int64_t>({-100, 1}, {2});
  const StepResult result = scaled.pipeline.Step({x}, {targets});
  EXPECT_TRUE(std::isfinite(result.loss)) << result.loss;
  EXPECT_EQ(result.loss, result.losses[1]);
}

TEST(PipelineLoss, RefusesWeightsThatAreNone) {
  for (const double weight : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    PipelineOptions options;
    options.weight = [weight](TensorSpan) { return weight; };
    ScalePipeline scaled(GPipe(2, 2), options);
    const Error error = ErrorOf([&] { scaled.pipeline.Step({Ones({4})}, {Ones({4})}); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(PipelineLoss, RefusesFewerRowsThanMicroBatchesWithTheNumbers) {
  ScalePipeline scaled(GPipe(2, 4));
  const Error error = ErrorOf([&] { scaled.pipeline.Step({Ones({3, 2})}, {}); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(error.message(), "3 rows")) << error.message();
  EXPECT_TRUE(absl::StrContains(error.message(), "4 micro-batches")) << error.message();
  // Of the pipeline nothing is spent.
  scaled.pipeline.Step({Ones({4, 2})}, {});
  EXPECT_FLOAT_EQ(scaled.Gradient(), 1.0f);
}

TEST(PipelineLoss, RefusesBatchesThatAreNone) {
  ScalePipeline scaled(GPipe(2, 2));
  EXPECT_EQ(ErrorOf([&] {
              scaled.pipeline.Step({Ones({4}), Ones({5})}, {});
            }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { scaled.pipeline.Step({Ones({})}, {}); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { scaled.pipeline.Step({Ones({4})}, {Ones({5})}); }).code(),
            absl::StatusCode::kInvalidArgument);
  const Tensor wants = autograd::SetRequiresGrad(Ones({4}), true);
  EXPECT_EQ(ErrorOf([&] { scaled.pipeline.Step({wants}, {}); }).code(),
            absl::StatusCode::kInvalidArgument);
  const autograd::NoGradScope no_grad;
  EXPECT_EQ(ErrorOf([&] { scaled.pipeline.Step({Ones({4})}, {}); }).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(PipelineLoss, RefusesALossThatIsNone) {
  PipelineOptions options;
  options.loss = [](TensorSpan outputs, TensorSpan) { return outputs[0]; };
  ScalePipeline scaled(GPipe(2, 2), options);
  const Error error = ErrorOf([&] { scaled.pipeline.Step({Ones({4})}, {}); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(error.message(), "stage 1, micro-batch 0")) << error.message();
}

TEST(PipelineLoss, EvaluationIsTheUnsplitModels) {
  const auto model = MakeMlp(8), whole = MakeMlp(8);
  PipelineOptions options = {.schedule = OneForwardOneBackward(3, 4), .loss = MseOf};
  options.keep_outputs = true;
  Pipeline pipeline(CutEvenly(*model, 3), options);
  const Tensor x = Inputs(3, 11), target = Targets(3, 11);
  StepResult result = pipeline.Evaluate({x});
  ASSERT_EQ(result.outputs.size(), 1u);
  EXPECT_EQ(result.outputs[0].ToVector<float>(), (*whole)(x).ToVector<float>());
  EXPECT_FALSE(autograd::RequiresGrad(result.outputs[0]));
  EXPECT_TRUE(result.losses.empty());
  const double loss = MseLoss((*whole)(x), target).Item<double>();
  EXPECT_NEAR(pipeline.Evaluate({x}, {target}).loss, loss, 1e-6);
  for (const auto& [name, gradient] : GradientsOf(pipeline.module())) {
    EXPECT_TRUE(gradient.empty()) << name;
  }
  result = pipeline.Step({x}, {target});
  EXPECT_EQ(result.outputs[0].ToVector<float>(), (*whole)(x).ToVector<float>());
}

TEST(PipelineLoss, AForwardOnlyScheduleEvaluates) {
  const auto model = MakeMlp(8), whole = MakeMlp(8);
  Pipeline pipeline(CutEvenly(*model, 4), {.schedule = ForwardOnly({0, 1, 0, 1}, 3)});
  const Tensor x = Inputs(0, 7);
  EXPECT_EQ(pipeline.Evaluate({x}).outputs[0].ToVector<float>(), (*whole)(x).ToVector<float>());
  EXPECT_EQ(ErrorOf([&] { pipeline.Step({x}, {Targets(0, 7)}); }).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(PipelineLoss, EveryRankOfACommunicatorHasTheLosses) {
  const Schedule schedule = OneForwardOneBackward(3, 4);
  testing_util::OnRanks(3, [&](int rank, auto world) {
    const auto model = MakeMlp(8), whole = MakeMlp(8);
    Pipeline pipeline(testing_util::StagesOf(schedule, rank, CutEvenly(*model, 3)), world,
                      {.schedule = schedule, .loss = MseOf});
    // What a rank does not need, it need not have.
    const std::vector<Tensor> x =
        rank == 0 ? std::vector<Tensor>{Inputs(0, 9)} : std::vector<Tensor>{};
    const std::vector<Tensor> y =
        rank == 2 ? std::vector<Tensor>{Targets(0, 9)} : std::vector<Tensor>{};
    const StepResult result = pipeline.Step(x, y);
    const double wanted = MseLoss((*whole)(Inputs(0, 9)), Targets(0, 9)).template Item<double>();
    EXPECT_NEAR(result.loss, wanted, 1e-6);
    EXPECT_EQ(result.losses.size(), 4u);
    const StepResult evaluated = pipeline.Evaluate(x);
    EXPECT_EQ(evaluated.outputs.size(), rank == 2 ? 1u : 0u);
    EXPECT_TRUE(evaluated.losses.empty());
    EXPECT_NEAR(pipeline.Evaluate(x, y).loss, wanted, 1e-6);
  });
}

}  // namespace
}  // namespace lockstep::pipeline
