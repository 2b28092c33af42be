// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/amp/training/training_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/span_observer.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::amp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor Parameter(const std::vector<float>& values) {
  return autograd::SetRequiresGrad(FromVector<float>(values, {static_cast<int64_t>(values.size())}),
                                   true);
}

// A weight vector, SGD, and the gradient that SGD saw last.
struct OneVector {
  explicit OneVector(const std::vector<float>& values, double lr = 1)
      : w(Parameter(values)), optimizer({{"w", w}}, {.lr = lr}) {}
  TrainingStepOptions Options() {
    return {.optimizers = {{&optimizer}},
            .before_optimizers = [this] { seen = autograd::Grad(w).ToVector<double>(); }};
  }
  Tensor w;
  optim::Sgd optimizer;
  std::vector<double> seen;
};

// A loss with the gradient `gradient`.
Tensor LossOf(const Tensor& w, const std::vector<float>& gradient) {
  return Sum(w * FromVector<float>(gradient, {static_cast<int64_t>(gradient.size())}));
}

// Two micro-batches a pass, as a pipeline has them, whose losses' sum is the pass's mean.
TEST(TrainingStepTest, PassesThatRunBackwardThemselvesStepAlike) {
  const auto gradient = [](int64_t i) {
    return std::vector<float>{0.5f + static_cast<float>(i), -3, 2 - static_cast<float>(i)};
  };
  for (const double init_scale : {0.0, 1024.0}) {
    std::vector<std::vector<float>> weights;
    std::vector<StepReport> reports;
    for (const bool passes : {false, true}) {
      OneVector model({1, 2, 3}, 0.25);
      GradScaler scaler({.enabled = init_scale > 0, .init_scale = std::max(init_scale, 1.0)});
      TrainingStepOptions options = model.Options();
      options.scaler = &scaler;
      options.clip_norm = 2;
      options.micro_batches = 6;
      int scopes = 0;
      options.no_sync = [&] { return std::make_shared<int>(++scopes); };
      TrainingStep step(options);
      for (int n = 0; n < 3; ++n) {
        if (passes) {
          const auto pass = [&](int64_t i, const TrainingStep::ScaleLoss& scale) {
            const Tensor one = LossOf(model.w, gradient(2 * i)) * 0.5;
            const Tensor two = LossOf(model.w, gradient(2 * i + 1)) * 0.5;
            autograd::Backward(scale(one));
            autograd::Backward(scale(two));
            return Detach(one) + Detach(two);
          };
          reports.push_back(step.RunPasses(pass, 3));
        } else {
          reports.push_back(step.Run([&](int64_t i) { return LossOf(model.w, gradient(i)); }));
        }
        EXPECT_TRUE(reports.back().stepped);
      }
      EXPECT_EQ(scopes, passes ? 3 * 2 : 3 * 5);
      weights.push_back(model.w.ToVector<float>());
    }
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(weights[0][k], weights[1][k], 1e-6);
    for (size_t n = 0; n < 3; ++n) EXPECT_NEAR(reports[n].loss, reports[3 + n].loss, 1e-5);
  }
}

TEST(TrainingStepTest, APassWithoutAFiniteLossIsRunAgainForwardToNameWhereItBegins) {
  OneVector model({1, 2, 3});
  TrainingStep step(model.Options());
  int forwards = 0, backwards = 0;
  const auto pass = [&](int64_t i, const TrainingStep::ScaleLoss& scale) {
    const Tensor loss = Log(LossOf(model.w, {-1, 0, 0})) * static_cast<double>(1 + i);
    ++forwards;
    if (autograd::GradEnabled()) {
      ++backwards;
      autograd::Backward(scale(loss));
    }
    return Detach(loss);
  };
  EXPECT_THAT(MessageOf([&] { step.RunPasses(pass, 2); }),
              HasSubstr("micro-batch 0 of 2); it begins with"));
  EXPECT_EQ(forwards, 3);
  EXPECT_EQ(backwards, 2);
  EXPECT_EQ(model.w.ToVector<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_THAT(MessageOf([&] { step.RunPasses(pass, 0); }), HasSubstr("passes is 0"));
}

TEST(TrainingStepTest, IsTheLoopWrittenByHand) {
  const auto data = [](int step, int64_t i) {
    std::vector<float> values;
    for (int k = 0; k < 15; ++k) {
      values.push_back(std::sin(0.3f * static_cast<float>(k + 15 * i + 31 * step)));
    }
    return FromVector<float>(values, {5, 3});
  };
  struct Run {
    Run() {
      ManualSeed(3);
      model = std::make_shared<nn::Linear>(3, 2);
      optimizer = std::make_unique<optim::Sgd>(model->NamedParameters(),
                                               optim::SgdOptions{.lr = 0.5, .momentum = 0.9});
      schedule = std::make_unique<optim::Schedule>(
          optimizer.get(), [](int64_t step) { return 1.0 / static_cast<double>(1 + step); });
    }
    Tensor Loss(const Tensor& x) { return Mean((*model)(x) * (*model)(x)); }
    std::shared_ptr<nn::Linear> model;
    std::unique_ptr<optim::Sgd> optimizer;
    std::unique_ptr<optim::Schedule> schedule;
  };
  Run by_hand, with_step;
  TrainingStep training({.optimizers = {{with_step.optimizer.get(), with_step.schedule.get()}},
                         .module = with_step.model.get(),
                         .clip_norm = 0.1,
                         .micro_batches = 3});
  for (int step = 0; step < 4; ++step) {
    double loss = 0;
    by_hand.optimizer->ZeroGrad();
    for (int64_t i = 0; i < 3; ++i) {
      const Tensor part = by_hand.Loss(data(step, i));
      loss += part.Item<double>() / 3;
      autograd::Backward(part * (1.0 / 3));
    }
    const double norm =
        optim::ClipGradNorm(by_hand.optimizer->parameters().Tensors(), 0.1).Item<double>();
    by_hand.optimizer->Step();
    by_hand.schedule->Step();

    const StepReport report =
        training.Run([&](int64_t i) { return with_step.Loss(data(step, i)); });
    EXPECT_NEAR(report.loss, loss, 1e-12);
    EXPECT_EQ(report.grad_norm, norm);
    EXPECT_TRUE(report.stepped);
    EXPECT_THAT(report.optimizer_stepped, ElementsAre(true));
    EXPECT_EQ(report.scale, 1);
    EXPECT_EQ(with_step.schedule->step(), step + 1);
    EXPECT_EQ(with_step.model->weight.ToVector<double>(), by_hand.model->weight.ToVector<double>());
    EXPECT_FALSE(autograd::Grad(with_step.model->weight).defined());
  }
}

// Field report: the gradient's size does not depend on the number of micro-batches or rounds.
TEST(TrainingStepTest, TheGradientIsThatOfTheMeanWhateverTheCount) {
  for (int64_t count : {1, 2, 3, 4, 7}) {
    OneVector model({0});
    TrainingStepOptions options = model.Options();
    options.micro_batches = count;
    TrainingStep training(options);
    for (int round = 1; round <= 3; ++round) {
      // Sequences of another length in each round; each micro-batch's true gradient is 1.
      const auto length = static_cast<int64_t>(2 + 2 * round);
      const StepReport report =
          training.Run([&](int64_t) { return Mean(Expand(model.w, {length})); });
      ASSERT_EQ(model.seen.size(), 1u);
      EXPECT_NEAR(model.seen[0], 1, 1e-6) << count;
      EXPECT_NEAR(report.loss, 1 - round, 1e-5);
      EXPECT_NEAR(model.w.Item<double>(), -round, 1e-5);
    }
  }
}

TEST(TrainingStepTest, AShortLastWindowIsApplied) {
  OneVector model({0});
  TrainingStepOptions options = model.Options();
  options.micro_batches = 4;
  TrainingStep training(options);
  const auto forward = [&](int64_t i) { return LossOf(model.w, {static_cast<float>(i)}); };
  training.Run(forward);
  EXPECT_THAT(model.seen, ElementsAre(1.5));
  training.Run(forward, 2);
  EXPECT_THAT(model.seen, ElementsAre(0.5));
  EXPECT_EQ(model.w.Item<double>(), -2);
}

// Field report: a mean over tokens, not a mean of means.
TEST(TrainingStepTest, WeightsCountTokens) {
  OneVector model({2});
  TrainingStep training(model.Options());
  const auto forward = [&](int64_t i) { return LossOf(model.w, {i == 0 ? 4.0f : 0.0f}); };
  const StepReport report = training.RunWeighted(forward, {1, 3});
  EXPECT_THAT(model.seen, ElementsAre(1));
  EXPECT_EQ(report.loss, 2);
  training.Run(forward, 2);
  EXPECT_THAT(model.seen, ElementsAre(2)) << "what weights are for";
}

TEST(TrainingStepTest, AWindowWithoutTokensGivesZeroAndNoNan) {
  const Tensor logits =
      autograd::SetRequiresGrad(FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3}), true);
  optim::Sgd optimizer({{"logits", logits}}, {.lr = 1});
  std::vector<double> seen;
  TrainingStep training({.optimizers = {{&optimizer}}, .clip_norm = 1.0, .before_optimizers = [&] {
                           seen = autograd::Grad(logits).ToVector<double>();
                         }});
  const auto forward = [&](int64_t i) {
    const std::vector<int64_t> targets =
        i == 0 ? std::vector<int64_t>{-100, -100} : std::vector<int64_t>{1, -100};
    return CrossEntropy(logits, FromVector<int64_t>(targets, {2}));
  };
  ASSERT_TRUE(std::isnan(forward(0).Item<double>()));
  const StepReport empty = training.RunWeighted(forward, {0});
  EXPECT_THAT(seen, ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_EQ(empty.loss, 0);
  EXPECT_EQ(empty.grad_norm, 0);
  EXPECT_TRUE(empty.stepped);
  const double alone = forward(1).Item<double>();
  const StepReport mixed = training.RunWeighted(forward, {0, 1});
  EXPECT_NEAR(mixed.loss, alone, 1e-6);
  EXPECT_GT(seen[0], 0);
  EXPECT_EQ(seen[3], 0);
}

// 0 times a gradient that is NaN is NaN: not silently a parameter of NaN.
TEST(TrainingStepTest, AMeanOverNothingWhoseGradientIsNanIsRefused) {
  for (const bool scaled : {false, true}) {
    OneVector model({1, 2});
    GradScaler scaler;
    TrainingStepOptions options = model.Options();
    if (scaled) options.scaler = &scaler;
    TrainingStep training(options);
    const std::vector<double> before = model.w.ToVector<double>();
    const auto forward = [&](int64_t i) {
      const Tensor count = Full({}, i == 0 ? 0.0 : 2.0);
      return Div(Mul(Sum(Mul(model.w, model.w)), count), count);
    };
    for (const std::vector<double>& weights : {std::vector<double>{0}, {0, 4}}) {
      const Error error = ErrorOf([&] { training.RunWeighted(forward, weights); });
      EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(error.message(),
                  HasSubstr(absl::StrCat("the loss is nan (micro-batch 0 of ", weights.size(),
                                         "); it begins with op Div")));
      EXPECT_EQ(model.w.ToVector<double>(), before);
      EXPECT_EQ(scaler.scale(), 65536);
    }
    // As the error says nothing of: a count of at least 1.
    const auto clamped = [&](int64_t i) {
      const Tensor count = Full({}, i == 0 ? 0.0 : 2.0);
      return Div(Mul(Sum(Mul(model.w, model.w)), count), Clamp(count, 1.0, 1e9));
    };
    EXPECT_TRUE(training.RunWeighted(clamped, {0, 4}).stepped);
    EXPECT_THAT(model.seen, ElementsAre(2, 4));
  }
}

// An overflow of one micro-batch is not blamed on another, which counts nothing.
TEST(TrainingStepTest, AMeanOverNothingAfterAnOverflowIsASkip) {
  OneVector model({1, 2, 3});
  GradScaler scaler;
  TrainingStepOptions options = model.Options();
  options.scaler = &scaler;
  TrainingStep training(options);
  const StepReport report = training.RunWeighted(
      [&](int64_t i) {
        if (i == 0) return Mul(Sum(model.w), 1e36);
        const Tensor logits = Reshape(model.w, {1, 3});
        return CrossEntropy(logits, FromVector<int64_t>({-100}, {1}));
      },
      {1, 0});
  EXPECT_TRUE(report.found_inf);
  EXPECT_FALSE(report.stepped);
}

TEST(TrainingStepTest, WeightsWhoseSumIsNotFiniteAreRefused) {
  OneVector model({1});
  TrainingStep training(model.Options());
  const Error error = ErrorOf([&] {
    training.RunWeighted([&](int64_t) { return Sum(model.w); }, {1e308, 1e308});
  });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("the weights of all ranks add up to inf"));
}

// Whatever the second forward pass throws, the error is that of the loss.
TEST(TrainingStepTest, ASearchThatFailsDoesNotHideTheLoss) {
  OneVector model({1});
  TrainingStep training(model.Options());
  int calls = 0;
  const auto forward = [&](int64_t) {
    if (++calls > 1) throw std::runtime_error("no more data");
    return Mul(Sum(model.w), std::numeric_limits<double>::quiet_NaN());
  };
  EXPECT_THAT(
      MessageOf([&] { training.Run(forward); }),
      HasSubstr("the loss is nan (micro-batch 0 of 1); looking for where it begins failed: no "
                "more data"));
}

// Field report: clipping acts on true gradients, and the divisor is the scale of that backward.
TEST(TrainingStepTest, UnscalesBeforeItClips) {
  OneVector model({0, 0});
  GradScaler scaler({.init_scale = 1024, .growth_interval = 1});
  TrainingStepOptions options = model.Options();
  options.scaler = &scaler;
  options.clip_norm = 1;
  TrainingStep training(options);
  for (int step = 0; step < 3; ++step) {
    const StepReport report = training.Run([&](int64_t) { return LossOf(model.w, {3, 4}); });
    ASSERT_EQ(model.seen.size(), 2u);
    EXPECT_NEAR(model.seen[0], 0.6, 1e-6);
    EXPECT_NEAR(model.seen[1], 0.8, 1e-6);
    EXPECT_EQ(report.grad_norm, 5);
    EXPECT_EQ(report.scale, 1024 << step);
    EXPECT_EQ(scaler.scale(), 2048 << step);
  }
}

TEST(TrainingStepTest, ClipsAsItIsTold) {
  OneVector model({0, 0});
  TrainingStepOptions options = model.Options();
  options.clip_norm = 2;
  std::vector<double> norms;
  options.clip_grad_norm = [&](double max_norm) {
    norms.push_back(max_norm);
    MulInPlace(autograd::Grad(model.w), 0.5);
    return FromVector<float>({7}, {1});
  };
  TrainingStep training(options);
  const StepReport report = training.Run([&](int64_t) { return LossOf(model.w, {3, 4}); });
  EXPECT_THAT(norms, ElementsAre(2));
  EXPECT_EQ(report.grad_norm, 7);
  EXPECT_THAT(model.seen, ElementsAre(1.5, 2));
}

TEST(TrainingStepTest, ASkippedStepLeavesEverythingAndSaysSo) {
  const Tensor w = Parameter({1});
  optim::Adam optimizer({{"w", w}}, {.lr = 0.25});
  optim::Schedule schedule(&optimizer,
                           [](int64_t step) { return 1.0 / static_cast<double>(1 + step); });
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  int calls = 0;
  TrainingStep training({.optimizers = {{&optimizer, &schedule}},
                         .scaler = &scaler,
                         .clip_norm = 1e9,
                         .before_optimizers = [&] { ++calls; }});
  const std::vector<double> scales = {8, 16, 8, 8, 16, 16};
  double before = 1;
  for (int step = 0; step < 6; ++step) {
    const bool overflow = step == 2;  // 16 * 3e37 is no float32 number
    const double scale = scaler.scale();
    const StepReport report =
        training.Run([&](int64_t) { return LossOf(w, {overflow ? 3e37f : 1.0f}); });
    EXPECT_EQ(report.stepped, !overflow);
    EXPECT_EQ(report.found_inf, overflow);
    EXPECT_EQ(report.scale, scale);
    EXPECT_EQ(report.grad_norm.has_value(), !overflow);
    EXPECT_EQ(w.Item<double>() == before, overflow);
    EXPECT_EQ(scaler.scale(), scales[static_cast<size_t>(step)]);
    EXPECT_EQ(schedule.step(), step < 2 ? step + 1 : step);
    EXPECT_FALSE(autograd::Grad(w).defined());
    if (overflow) {
      EXPECT_THAT(report.ToString(), HasSubstr("scale 16; scaled gradients were not finite: 1 of "
                                               "1 optimizers skipped this step"));
    } else {
      EXPECT_THAT(report.ToString(), HasSubstr("gradient norm 1"));
    }
    before = w.Item<double>();
  }
  EXPECT_EQ(optimizer.SaveState().numbers.at("w.step"), 5);
  EXPECT_EQ(calls, 5);
}

TEST(TrainingStepTest, AnOptimizerStepsWhenAnotherOverflows) {
  OneVector good({0, 0}), bad({1});
  optim::Schedule good_schedule(&good.optimizer, [](int64_t) { return 1.0; });
  optim::Schedule bad_schedule(&bad.optimizer, [](int64_t) { return 1.0; });
  GradScaler scaler({.init_scale = 16});
  TrainingStep training(
      {.optimizers = {{&bad.optimizer, &bad_schedule}, {&good.optimizer, &good_schedule}},
       .scaler = &scaler,
       .clip_norm = 1.0});
  for (int step = 1; step <= 3; ++step) {
    const StepReport report = training.Run([&](int64_t) {
      return LossOf(good.w, {3, 4}) + LossOf(bad.w, {3e38f});
    });
    EXPECT_FALSE(report.stepped);
    EXPECT_TRUE(report.found_inf);
    EXPECT_THAT(report.optimizer_stepped, ElementsAre(false, true));
    EXPECT_EQ(report.grad_norm, 5) << "of what will be used";
    EXPECT_EQ(scaler.scale(), 16 >> step);
    EXPECT_NEAR(good.w.ToVector<double>()[0], -0.6 * step, 1e-6);
  }
  EXPECT_EQ(bad.w.Item<double>(), 1);
  EXPECT_EQ(good_schedule.step(), 3);
  EXPECT_EQ(bad_schedule.step(), 0);
  // At a scale of 1 the gradient of 3e38 fits at last.
  scaler = GradScaler({.init_scale = 1});
  EXPECT_TRUE(training.Run([&](int64_t) {
                        return LossOf(good.w, {3, 4}) + LossOf(bad.w, {1});
                      })
                  .stepped);
}

// x -> log(x * weight), in a module of its own.
class LogModel : public nn::UnaryModule {
 public:
  class Part : public nn::UnaryModule {
   public:
    Part() { RegisterParameter("weight", &weight, Ones({3})); }
    Tensor Forward(const Tensor& x) override { return Log(x * weight); }
    Tensor weight;
  };
  LogModel() : part(RegisterModule("part", std::make_shared<Part>())) {}
  Tensor Forward(const Tensor& x) override { return Mean((*part)(x)); }
  std::shared_ptr<Part> part;
};

TEST(TrainingStepTest, ALossThatIsNotFiniteIsAnErrorThatNamesItsSource) {
  LogModel model;
  optim::Sgd optimizer(model.NamedParameters(), {.lr = 0.5});
  optim::Schedule schedule(&optimizer, [](int64_t) { return 1.0; });
  GradScaler scaler({.init_scale = 8});
  TrainingStep training({.optimizers = {{&optimizer, &schedule}},
                         .module = &model,
                         .scaler = &scaler,
                         .micro_batches = 3});
  const auto forward = [&](bool bad) {
    return [&model, bad](int64_t i) {
      return model(FromVector<float>({1, bad && i == 1 ? -2.0f : 2.0f, 3}, {3}));
    };
  };
  for (int i = 0; i < 60; ++i) {
    const Error error = ErrorOf([&] { training.Run(forward(true)); });
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(error.message(),
              "TrainingStep: the loss is nan (micro-batch 1 of 3); it begins with op Log, output 0 "
              "(y) in module \"part\": float32[3] on cpu:0 has nan at [1]; its inputs were finite. "
              "Nothing was changed. Look at what is named, or lower the learning rate");
  }
  EXPECT_THAT(model.part->weight.ToVector<double>(), ElementsAre(1, 1, 1));
  EXPECT_EQ(schedule.step(), 0);
  EXPECT_EQ(scaler.scale(), 8) << "nothing that a smaller scale could help";
  EXPECT_FALSE(autograd::Grad(model.part->weight).defined());
  EXPECT_TRUE(training.Run(forward(false)).stepped);
  model.part->weight =
      autograd::SetRequiresGrad(FromVector<float>({1, static_cast<float>(kNan), 1}, {3}), true);
  EXPECT_THAT(MessageOf([&] { training.Run(forward(false)); }),
              HasSubstr("begins with parameter \"part.weight\": float32[3] on cpu:0 has nan"));
}

TEST(TrainingStepTest, TheSearchDrawsTheSameRandomNumbers) {
  OneVector model({1, 1, 1, 1});
  TrainingStepOptions options = model.Options();
  options.micro_batches = 2;
  TrainingStep training(options);
  ManualSeed(11);
  // One bad element of 4 at a place that the draw decides; both micro-batches draw.
  std::vector<std::vector<double>> draws;
  const auto forward = [&](int64_t) {
    const Tensor x = RandomUniform({4}) + -0.25;
    draws.push_back(x.ToVector<double>());
    return Sum(Log(x) * model.w);
  };
  const auto finite = [](const std::vector<double>& draw) {
    return *std::min_element(draw.begin(), draw.end()) > 0;
  };
  int searches = 0;
  for (int step = 0; step < 20; ++step) {
    draws.clear();
    std::string message;
    try {
      training.Run(forward);
    } catch (const Error& error) {
      message = error.message();
    }
    if (finite(draws[0]) && finite(draws[1])) {
      EXPECT_EQ(message, "");
      continue;
    }
    ++searches;
    ASSERT_EQ(draws.size(), 3u);
    EXPECT_EQ(draws[2], finite(draws[0]) ? draws[1] : draws[0]);
    EXPECT_THAT(message, HasSubstr("begins with op Log"));
  }
  EXPECT_GT(searches, 5);
}

TEST(TrainingStepTest, TheSearchCanBeLeftOut) {
  OneVector model({1});
  TrainingStepOptions options = model.Options();
  options.find_non_finite = false;
  TrainingStep training(options);
  int calls = 0;
  EXPECT_EQ(MessageOf([&] {
              training.Run([&](int64_t) {
                ++calls;
                return model.w * kInf;
              });
            }),
            "TrainingStep: the loss is inf (micro-batch 0 of 1). Nothing was changed. Look at what "
            "is named, or lower the learning rate");
  EXPECT_EQ(calls, 1);
}

TEST(TrainingStepTest, GradientsThatAreNotFiniteWithoutAScalerAreAnError) {
  OneVector model({4, 0});
  TrainingStepOptions options = model.Options();
  options.clip_norm = 1;
  TrainingStep training(options);
  const auto forward = [&](int64_t) { return Sum(Sqrt(model.w)); };
  EXPECT_THAT(MessageOf([&] { training.Run(forward); }), HasSubstr("norm of the gradients is inf"));
  EXPECT_THAT(model.w.ToVector<double>(), ElementsAre(4, 0));
}

TEST(TrainingStepTest, AnErrorEndsTheIterationOfTheScaler) {
  OneVector model({1});
  GradScaler scaler({.init_scale = 4});
  TrainingStepOptions options = model.Options();
  options.scaler = &scaler;
  bool fail = true;
  options.before_optimizers = [&] {
    if (fail) throw InternalError("the hook's");
  };
  TrainingStep training(options);
  const auto forward = [&](int64_t) { return LossOf(model.w, {1}); };
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(MessageOf([&] { training.Run(forward); }), "the hook's");
    EXPECT_FALSE(autograd::Grad(model.w).defined());
  }
  EXPECT_EQ(scaler.scale(), 4);
  fail = false;
  EXPECT_TRUE(training.Run(forward).stepped);
  EXPECT_EQ(MessageOf([&] {
              training.Run([&](int64_t i) -> Tensor {
                if (i == 0) throw InternalError("the forward's");
                return {};
              });
            }),
            "the forward's");
  EXPECT_TRUE(training.Run(forward).stepped);
  EXPECT_EQ(model.w.Item<double>(), -1);
}

TEST(TrainingStepTest, GradientsOfBeforeDoNotCount) {
  OneVector model({0});
  TrainingStep training(model.Options());
  autograd::SetGrad(model.w, Full({1}, 100.0));
  training.Run([&](int64_t) { return LossOf(model.w, {2}); });
  EXPECT_THAT(model.seen, ElementsAre(2));
}

// Records ranges, and scopes of no_sync beside them.
class Events : public SpanObserver {
 public:
  void OnSpan(const Span& span) override {
    if (span.kind == SpanKind::kRange) Add(std::string(span.name));
  }
  void Add(const std::string& event) {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(event);
  }
  std::vector<std::string> events() const { return events_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> events_;
};

TEST(TrainingStepTest, OnlyTheLastMicroBatchSynchronises) {
  OneVector model({0});
  const auto events = std::make_shared<Events>();
  struct Scope {
    explicit Scope(Events* events) : events(events) { events->Add("no sync"); }
    ~Scope() { events->Add("sync"); }
    Events* events;
  };
  TrainingStep training({.optimizers = {{&model.optimizer}}, .micro_batches = 3, .no_sync = [&] {
                           return std::make_shared<Scope>(events.get());
                         }});
  MutableThreadState().observer = events;
  training.Run([&](int64_t) { return LossOf(model.w, {1}); });
  training.Run([&](int64_t) { return LossOf(model.w, {1}); }, 1);
  MutableThreadState().observer = nullptr;
  EXPECT_THAT(events->events(), ElementsAre("no sync", "forward", "backward", "sync", "no sync",
                                            "forward", "backward", "sync", "forward", "backward",
                                            "optimizer", "forward", "backward", "optimizer"));
}

TEST(TrainingStepTest, AutocastIsAroundTheForwardPassOnly) {
  ManualSeed(5);
  nn::Linear model(3, 4);
  optim::Sgd optimizer(model.NamedParameters(), {.lr = 0.1});
  TrainingStep training({.optimizers = {{&optimizer}},
                         .autocast = AutocastOptions{.dtype = DType::kBFloat16},
                         .before_optimizers = [&] {
                           EXPECT_FALSE(AutocastEnabled());
                           EXPECT_EQ(autograd::Grad(model.weight).dtype(), DType::kFloat32);
                         }});
  for (int step = 0; step < 3; ++step) {
    training.Run([&](int64_t) {
      EXPECT_TRUE(AutocastEnabled());
      const Tensor y = model(Ones({2, 3}));
      EXPECT_EQ(y.dtype(), DType::kBFloat16);
      return Mean(y * y);
    });
    EXPECT_FALSE(AutocastEnabled());
  }
}

TEST(TrainingStepTest, LossesOf16BitsAreScaledIn32) {
  OneVector model({3});
  GradScaler scaler;  // 65536 / 3 * 3 is beyond float16
  TrainingStepOptions options = model.Options();
  options.scaler = &scaler;
  options.micro_batches = 3;
  TrainingStep training(options);
  const StepReport report =
      training.Run([&](int64_t) { return To(Sum(model.w), DType::kFloat16); });
  EXPECT_NEAR(report.loss, 3, 1e-12);
  ASSERT_EQ(model.seen.size(), 1u);
  EXPECT_NEAR(model.seen[0], 1, 1e-3);
}

// Field report: updates of 1e-3 vanish in a bfloat16 weight of 1, and add up in a float32 one.
TEST(TrainingStepTest, MasterWeightsAddUpWhatSixteenBitsLose) {
  OneVector master({1}, /*lr=*/1e-3);
  TrainingStep training(master.Options());
  Tensor visible;
  for (int step = 0; step < 100; ++step) {
    training.Run([&](int64_t) {
      visible = To(master.w, DType::kBFloat16);
      return Sum(visible);
    });
  }
  EXPECT_NEAR(master.w.Item<double>(), 0.9, 2e-6);
  EXPECT_EQ(To(master.w, DType::kBFloat16).Item<double>(), 0.8984375);

  const Tensor w = autograd::SetRequiresGrad(Full({1}, 1.0, {.dtype = DType::kBFloat16}), true);
  optim::Sgd optimizer({{"w", w}}, {.lr = 1e-3});
  TrainingStep without({.optimizers = {{&optimizer}}});
  for (int step = 0; step < 100; ++step) without.Run([&](int64_t) { return Sum(w); });
  EXPECT_EQ(w.Item<double>(), 1);
}

TEST(TrainingStepTest, TooManySkipsEndInTheScalersError) {
  OneVector model({1});
  GradScaler scaler({.max_consecutive_skips = 3});
  TrainingStepOptions options = model.Options();
  options.scaler = &scaler;
  TrainingStep training(options);
  // The loss is finite, its gradient is not.
  const auto forward = [&](int64_t) { return Sum(Sqrt(model.w + -1.0)); };
  EXPECT_FALSE(training.Run(forward).stepped);
  EXPECT_FALSE(training.Run(forward).stepped);
  EXPECT_THAT(MessageOf([&] { training.Run(forward); }),
              HasSubstr("the gradient of \"w\", float32[1] on cpu:0 has inf at [0]"));
}

TEST(TrainingStepTest, OptionsAndLossesAreChecked) {
  OneVector model({1});
  const auto message = [](const TrainingStepOptions& options) {
    const Error error = ErrorOf([&] { TrainingStep training(options); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    return error.message();
  };
  EXPECT_EQ(message({}), "TrainingStep: there is no optimizer");
  EXPECT_EQ(message({.optimizers = {{&model.optimizer}, {nullptr}}}),
            "TrainingStep: optimizer 1 is null");
  EXPECT_EQ(message({.optimizers = {{&model.optimizer}, {&model.optimizer}}}),
            "TrainingStep: optimizers 0 and 1 are the same");
  EXPECT_THAT(message({.optimizers = {{&model.optimizer}}, .clip_norm = 0.0}),
              HasSubstr("clip_norm is 0"));
  const auto clip = [](double) { return Tensor(); };
  EXPECT_THAT(message({.optimizers = {{&model.optimizer}}, .clip_grad_norm = clip}),
              HasSubstr("clip_grad_norm without clip_norm"));
  EXPECT_THAT(message({.optimizers = {{&model.optimizer}}, .micro_batches = 0}),
              HasSubstr("micro_batches is 0"));
  TrainingStep training(model.Options());
  const auto forward = [&](int64_t) { return LossOf(model.w, {1}); };
  EXPECT_THAT(MessageOf([&] { training.Run(forward, 0); }), HasSubstr("micro_batches is 0"));
  EXPECT_THAT(MessageOf([&] { training.RunWeighted(forward, {}); }), HasSubstr("no weights"));
  EXPECT_THAT(MessageOf([&] {
                training.RunWeighted(forward, {1, -2});
              }),
              HasSubstr("the weights are 1, -2;"));
  EXPECT_THAT(MessageOf([&] { training.RunWeighted(forward, {kNan}); }),
              HasSubstr("the weights are nan;"));
  EXPECT_THAT(MessageOf([&] { training.Run([](int64_t) { return Tensor(); }); }),
              HasSubstr("micro-batch 0 returned undefined;"));
  EXPECT_THAT(MessageOf([&] { training.Run([&](int64_t) { return Expand(model.w, {2}); }); }),
              HasSubstr("returned float32[2] on cpu:0;"));
  EXPECT_EQ(model.w.Item<double>(), 1);
}

}  // namespace
}  // namespace lockstep::amp
