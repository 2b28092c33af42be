// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Small models in stages, and what they are trained with: what tests of running pipelines compare
// in all combinations.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_TEST_MODEL_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_TEST_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/nn/containers.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/wiring.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline::testing_util {

enum class ModelKind : uint8_t {
  kMlp,    // a Sequential
  kSkips,  // each stage also takes what the one before the last made, the last also the batch
  kGpt,
  kTiedGpt,  // the head of the last stage is the embedding of the first
};
enum class Precision : uint8_t {
  kFloat32,
  kBFloat16,  // autocast
  kFloat16,   // autocast with a scaler, whose first scale overflows
};

struct Training {
  ModelKind model = ModelKind::kMlp;
  Precision precision = Precision::kFloat32;
  bool checkpointing = false;  // of each block, or layer
  int layers = 8;              // of kMlp; at least two a stage, so that each has parameters
  int steps = 3;
  int64_t rows = 17;  // of a step
  double dropout = 0;
  uint64_t seed = 7;

  friend bool operator==(const Training&, const Training&) = default;
};

// One line, and back.
std::string ToText(const Training& training);
Training ParseTraining(const std::string& text);

struct TestModel {
  std::vector<Stage> stages;
  Wiring wiring = {};
  std::vector<std::vector<StageParameter>> tied = {};
  LossFunction loss = nullptr;
};
// The same values for the same training and number of stages.
TestModel MakeTestModel(const Training& training, int stages);
// Of a step: rows that tell their number.
Tensor InputsOf(const Training& training, int step);
Tensor TargetsOf(const Training& training, int step);

// Linear layers of odd sizes with tanh between them, 5 to 3, `layers` modules; the same values for
// the same seed. `dropout` replaces each second tanh.
std::shared_ptr<nn::Sequential> MakeMlp(int layers, uint64_t seed = 7, double dropout = 0);

// Rows `first` and on: inputs [rows, 5], targets [rows, 3].
Tensor Inputs(int64_t first, int64_t rows);
Tensor Targets(int64_t first, int64_t rows);

// `model` in stages of about as many layers.
std::vector<Stage> CutEvenly(const nn::Sequential& model, int stages);

// The mean squared error of the first output.
Tensor MseOf(TensorSpan outputs, TensorSpan targets);

}  // namespace lockstep::pipeline::testing_util

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_TEST_MODEL_H_
