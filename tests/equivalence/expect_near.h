// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Trainings that are near each other, in the terms of docs/numerics.md: losses relative to
// themselves, parameters relative to the largest value of the tensor or of the model.
//
//   ExpectNear(TrainOnRanks(2), TrainAlone(), {.loss = 1e-6, .parameter = 1e-5});
//
// Each fails the current test at the first value that is too far, and at another number of values.
#ifndef LOCKSTEP_TESTS_EQUIVALENCE_EXPECT_NEAR_H_
#define LOCKSTEP_TESTS_EQUIVALENCE_EXPECT_NEAR_H_

#include <string>
#include <vector>

namespace lockstep::equivalence {

// The losses of the steps, and the values of each parameter after them.
using Result = std::vector<std::vector<double>>;

struct Bounds {
  double loss = 1e-6;       // relative
  double parameter = 1e-5;  // of the tensor's largest value, or
  bool of_model = false;    // of the model's
};

// Each value is within `bound` times the largest wanted one. `what` begins the message.
void ExpectNear(const std::vector<double>& values, const std::vector<double>& wanted, double bound,
                const std::string& what = "values");

void ExpectNear(const Result& result, const Result& wanted, const Bounds& bounds);

}  // namespace lockstep::equivalence

#endif  // LOCKSTEP_TESTS_EQUIVALENCE_EXPECT_NEAR_H_
