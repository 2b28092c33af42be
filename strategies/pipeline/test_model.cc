// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/test_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/gpt2_parts.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/pipeline/balance.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::pipeline::testing_util {
namespace {

constexpr int64_t kWidth = 5;  // of a batch's rows, and of kSkips
constexpr int64_t kTokens = 6;
constexpr int64_t kVocabulary = 13;

Tensor Waves(int64_t first, int64_t rows, int64_t columns, double frequency) {
  std::vector<float> values;
  for (int64_t i = first * columns; i < (first + rows) * columns; ++i) {
    values.push_back(static_cast<float>(std::sin(frequency * static_cast<double>(i) + 0.1)));
  }
  return FromVector<float>(values, {rows, columns}, {.device = Cpu()});
}

Tensor Ids(int64_t first, int64_t rows, int64_t shift) {
  std::vector<int64_t> ids;
  for (int64_t row = first; row < first + rows; ++row) {
    for (int64_t i = 0; i < kTokens; ++i)
      ids.push_back((row * row + 3 * (i + shift)) % kVocabulary);
  }
  return FromVector<int64_t>(ids, {rows, kTokens}, {.device = Cpu()});
}

bool IsGpt(const Training& training) {
  return training.model == ModelKind::kGpt || training.model == ModelKind::kTiedGpt;
}

Tensor TokenLoss(TensorSpan outputs, TensorSpan targets) {
  return CrossEntropy(Reshape(outputs[0], {-1, kVocabulary}), Reshape(targets[0], {-1}));
}

TestModel MakeGpt(const Training& training, int stages) {
  ManualSeed(training.seed);
  const bool tied = training.model == ModelKind::kTiedGpt;
  const models::Gpt2 model({.layers = stages,
                            .heads = 2,
                            .width = 8,
                            .block = kTokens,
                            .vocabulary = kVocabulary,
                            .dropout = training.dropout,
                            .tie_head = tied,
                            .init_std = 0.2});
  std::vector<int64_t> points;
  for (int s = 1; s < stages; ++s) points.push_back(s);
  TestModel result;
  for (const models::Gpt2Part& part : models::SplitGpt2(model, points)) {
    result.stages.push_back(
        {.parts = part.modules, .forward = [forward = part.forward](TensorSpan in) -> TensorList {
           return {forward(in[0])};
         }});
  }
  if (tied) result.tied = {{{0, "transformer.wte.weight"}, {stages - 1, "lm_head.weight"}}};
  result.loss = TokenLoss;
  return result;
}

TestModel MakeSkips(const Training& training, int stages) {
  ManualSeed(training.seed);
  TestModel result;
  for (int s = 0; s < stages; ++s) {
    const bool last = s + 1 == stages;
    const auto layer = std::make_shared<nn::Linear>(kWidth, last ? 3 : kWidth);
    const double dropout = training.dropout;
    result.stages.push_back(
        {.parts = {{absl::StrCat(s), layer}}, .forward = [=](TensorSpan in) -> TensorList {
           Tensor sum = in[0];
           for (size_t i = 1; i < in.size(); ++i) sum = Add(sum, in[i]);
           if (dropout > 0) sum = Dropout(sum, dropout);
           const Tensor y = (*layer)(sum);
           return {last ? y : Tanh(y)};
         }});
    std::vector<InputSource>& sources = result.wiring.emplace_back();
    sources.push_back({s == 0 ? kBatch : s - 1, 0});
    if (s > 1) sources.push_back({s - 2, 0});
    if (s > 0 && last) sources.push_back({kBatch, 0});
  }
  result.loss = MseOf;
  return result;
}

}  // namespace

std::string ToText(const Training& training) {
  return absl::StrCat(static_cast<int>(training.model), " ", static_cast<int>(training.precision),
                      " ", static_cast<int>(training.checkpointing), " ", training.layers, " ",
                      training.steps, " ", training.rows, " ", training.dropout, " ",
                      training.seed);
}

Training ParseTraining(const std::string& text) {
  Training training;
  std::istringstream stream(text);
  int model = 0, precision = 0;
  stream >> model >> precision >> training.checkpointing >> training.layers >> training.steps >>
      training.rows >> training.dropout >> training.seed;
  training.model = static_cast<ModelKind>(model);
  training.precision = static_cast<Precision>(precision);
  return training;
}

TestModel MakeTestModel(const Training& training, int stages) {
  TestModel model;
  if (IsGpt(training)) {
    model = MakeGpt(training, stages);
  } else if (training.model == ModelKind::kSkips) {
    model = MakeSkips(training, stages);
  } else {
    const auto mlp = MakeMlp(training.layers, training.seed, training.dropout);
    model.stages = CutEvenly(*mlp, stages);
    model.loss = MseOf;
  }
  if (!training.checkpointing) return model;
  for (const Stage& stage : model.stages) {
    for (const auto& [path, module] : stage.parts) {
      const bool is_block = dynamic_cast<models::Gpt2Block*>(module.get()) != nullptr;
      if (is_block || !IsGpt(training)) checkpoint::CheckpointModule(module);
    }
  }
  return model;
}

Tensor InputsOf(const Training& training, int step) {
  const int64_t first = step * training.rows;
  return IsGpt(training) ? Ids(first, training.rows, 0) : Inputs(first, training.rows);
}

Tensor TargetsOf(const Training& training, int step) {
  const int64_t first = step * training.rows;
  return IsGpt(training) ? Ids(first, training.rows, 1) : Targets(first, training.rows);
}

std::shared_ptr<nn::Sequential> MakeMlp(int layers, uint64_t seed, double dropout) {
  const std::vector<int64_t> sizes = {5, 7, 9, 7, 11, 5, 7};
  ManualSeed(seed);
  auto model = std::make_shared<nn::Sequential>();
  int64_t width = 5;
  for (int i = 0; i < layers; ++i) {
    if (i % 2 == 1 && i + 1 < layers) {
      if (dropout > 0 && i % 4 == 3) {
        model->Emplace<nn::Dropout>(dropout);
      } else {
        model->Emplace<nn::Tanh>();
      }
      continue;
    }
    // The last two are linear where the number is even.
    const bool last = i + 1 == layers;
    const int64_t next = last ? 3 : sizes[static_cast<size_t>(i / 2 + 1) % sizes.size()];
    model->Emplace<nn::Linear>(width, next);
    width = next;
  }
  return model;
}

Tensor Inputs(int64_t first, int64_t rows) { return Waves(first, rows, 5, 0.7); }
Tensor Targets(int64_t first, int64_t rows) { return Waves(first, rows, 3, 0.3); }

std::vector<Stage> CutEvenly(const nn::Sequential& model, int stages) {
  return SplitSequential(model, SplitPoints(std::vector<double>(model.size(), 1), stages));
}

Tensor MseOf(TensorSpan outputs, TensorSpan targets) { return MseLoss(outputs[0], targets[0]); }

}  // namespace lockstep::pipeline::testing_util
