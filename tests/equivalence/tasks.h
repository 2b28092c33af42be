// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What ranks train in the tests of equivalence: small models, and rows that tell their number, so
// that a part of the rows is not another part.
#ifndef LOCKSTEP_TESTS_EQUIVALENCE_TASKS_H_
#define LOCKSTEP_TESTS_EQUIVALENCE_TASKS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/nn/module.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::equivalence {

// A model, with values from this thread's generator, and its loss over rows
// [first, first + count) of data that has no end: a mean over the rows.
struct Task {
  std::shared_ptr<nn::Module> model;
  std::function<Tensor(int64_t first, int64_t count)> loss;
};

// float32[rows, columns] whose element (i, j) is sin(frequency * ((first + i) * columns + j) +
// 0.1).
Tensor Waves(int64_t first, int64_t rows, int64_t columns, double frequency);

// 5-17-9-3 with tanh, over rows that a buffer is added to, with values from the generator too.
Task MlpTask();
// 5-9-9-3 with tanh, whose middle layer, "middle", is used twice.
Task TwiceTask();
// Two blocks; the head is the token embedding: tied weights.
Task GptTask();

}  // namespace lockstep::equivalence

#endif  // LOCKSTEP_TESTS_EQUIVALENCE_TASKS_H_
