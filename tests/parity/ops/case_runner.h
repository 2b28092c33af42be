// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs parity cases: inputs, the function, gradients, and the rows of the op table that ran.
#ifndef LOCKSTEP_TESTS_PARITY_OPS_CASE_RUNNER_H_
#define LOCKSTEP_TESTS_PARITY_OPS_CASE_RUNNER_H_

#include <string>
#include <vector>

#include "lockstep/tensor/tensor.h"
#include "lockstep/tests/parity/ops/golden_case.h"
#include "lockstep/tests/parity/ops/row_recorder.h"

namespace lockstep::parity {

struct CaseRun {
  std::vector<Tensor> outputs;
  std::vector<Tensor> gradients;  // of the tensors that the inputs are views of; undefined: none
  std::vector<RowRecorder::Call> calls;
};

// Whether the golden has any.
bool HasGradients(const GoldenResult& golden);

// Without gradients where the golden has none.
CaseRun RunCase(const GoldenCase& test_case, const GoldenResult& golden);

// Runs `call` again in place, on a dense and on a strided copy of its first input, and compares the
// results and the gradients with those of the call, bit for bit. Returns "" when they are the same,
// or when the call has no such form: its output has another shape or dtype than its first input.
std::string InPlaceDifference(const RowRecorder::Call& call);

}  // namespace lockstep::parity

#endif  // LOCKSTEP_TESTS_PARITY_OPS_CASE_RUNNER_H_
