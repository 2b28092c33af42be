// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tests/equivalence/gpt_training.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/amp/training/training_step.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::equivalence {
namespace {

// Each token follows from the one before by a rule, but for one in five, which is any.
class MadeText {
 public:
  explicit MadeText(int64_t vocabulary) : vocabulary_(vocabulary) {}

  // ids and targets, [rows, block] each, one after the other.
  std::vector<Tensor> Next(int64_t rows, int64_t block) {
    std::vector<int64_t> ids, targets;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i <= block; ++i) {
        if (i < block) ids.push_back(token_);
        if (i > 0) targets.push_back(token_);
        Advance();
      }
    }
    return {FromVector<int64_t>(ids, {rows, block}), FromVector<int64_t>(targets, {rows, block})};
  }

 private:
  void Advance() {
    const Tensor draws = RandomUniform({2}, 0, 1, {.generator = &generator_});
    const double any = draws.Item<float>({0});
    token_ = any < 0.2 ? static_cast<int64_t>(draws.Item<float>({1}) * vocabulary_) % vocabulary_
                       : (5 * token_ + 3) % vocabulary_;
  }

  int64_t vocabulary_;
  int64_t token_ = 0;
  Generator generator_{{7, kDataStream, 0}};
};

NamedTensors CopiesOfGradients(const NamedTensors& parameters) {
  NamedTensors copies;
  for (const auto& [name, parameter] : parameters) {
    copies.Insert(name, Clone(autograd::Grad(parameter)));
  }
  return copies;
}

}  // namespace

double GptOutcome::LastLoss(size_t count) const {
  const auto end = losses.end();
  return std::accumulate(end - static_cast<ptrdiff_t>(count), end, 0.0) /
         static_cast<double>(count);
}

GptOutcome TrainGpt(const GptTraining& training) {
  ManualSeed(1);
  // One, unless it takes long: several would wait for each other where tests share processors.
  SetIntraOpThreads(IsSoakRun() ? 2 : 1);
  models::Gpt2 model(training.config);
  const NamedTensors parameters = model.NamedParameters();
  optim::AdamW optimizer(parameters, {.lr = training.lr});
  const auto autocast = amp::ParseAutocast(training.amp);
  std::optional<amp::GradScaler> scaler;
  if (autocast && autocast->dtype == DType::kFloat16) scaler.emplace();
  GptOutcome outcome;
  amp::TrainingStep step({.optimizers = {{&optimizer}},
                          .module = &model,
                          .autocast = autocast,
                          .scaler = scaler ? &*scaler : nullptr,
                          .micro_batches = training.micro_batches,
                          .before_optimizers = [&] {
                            if (outcome.losses.empty())
                              outcome.first_gradients = CopiesOfGradients(parameters);
                          }});
  MadeText text(training.config.vocabulary);
  for (int64_t i = 0; i < training.steps; ++i) {
    const amp::StepReport report = step.Run([&](int64_t) {
      const std::vector<Tensor> batch = text.Next(training.rows, training.config.block);
      return model.Loss(batch[0], batch[1]);
    });
    outcome.losses.push_back(report.loss);
    outcome.skipped += report.stepped ? 0 : 1;
  }
  autograd::NoGradScope no_grad;
  for (const auto& [name, parameter] : parameters)
    outcome.parameters.Insert(name, Clone(parameter));
  return outcome;
}

bool IsSoakRun() {
  const std::vector<std::string> arguments = testing::internal::GetArgvs();
  return std::find(arguments.begin(), arguments.end(), "--soak") != arguments.end();
}

}  // namespace lockstep::equivalence
