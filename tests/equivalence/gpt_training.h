// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The training run that the equivalence tests compare: GPT-2 on a text that is made, not read, so
// that every machine has the same one.
#ifndef LOCKSTEP_TESTS_EQUIVALENCE_GPT_TRAINING_H_
#define LOCKSTEP_TESTS_EQUIVALENCE_GPT_TRAINING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/models/gpt2.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::equivalence {

struct GptTraining {
  models::Gpt2Config config;
  int64_t rows = 4;  // of config.block tokens, each micro-batch
  int64_t steps = 3;
  int64_t micro_batches = 1;
  double lr = 1e-3;
  std::string amp;  // as amp::ParseAutocast takes it; float16 trains with a GradScaler
};

struct GptOutcome {
  std::vector<double> losses;    // of each step
  NamedTensors first_gradients;  // of the first step, unscaled
  NamedTensors parameters;       // at the end
  int64_t skipped = 0;           // steps
  // The mean of the last `count` losses.
  double LastLoss(size_t count) const;
};

// Starts from seed 1 each time.
GptOutcome TrainGpt(const GptTraining& training);

// Whether the test runs under --config=soak.
bool IsSoakRun();

}  // namespace lockstep::equivalence

#endif  // LOCKSTEP_TESTS_EQUIVALENCE_GPT_TRAINING_H_
