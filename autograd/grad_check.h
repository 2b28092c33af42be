// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares gradients with differences of function values, in float64. For tests of ops and custom
// functions.
//
//   GradCheckResult result = GradCheck(
//       [](TensorSpan in) { return std::vector<Tensor>{MatMul(in[0], in[1])}; }, {a, b});
//   EXPECT_TRUE(result.ok) << result.message;
#ifndef LOCKSTEP_AUTOGRAD_GRAD_CHECK_H_
#define LOCKSTEP_AUTOGRAD_GRAD_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd {

using DifferentiableFunction = std::function<std::vector<Tensor>(TensorSpan inputs)>;

struct GradCheckOptions {
  double step = 1e-6;  // of the central difference
  double relative_tolerance = 1e-5;
  double absolute_tolerance = 1e-7;
  // Also checks the gradients' gradients, for inputs and for the incoming gradients.
  bool second_order = false;
  uint64_t seed = 1;  // of the random weights of the outputs
};

struct GradCheckResult {
  bool ok = false;
  std::string message;  // the first element that differs: input, index, both values
};

// Checks every element of every input that is float64 and requires a gradient, as a leaf; other
// inputs are passed on. The outputs are summed with random weights, so each evaluation costs one
// forward. `function` must be deterministic, must not depend on anything but its inputs, and is
// called about twice for each element. Inputs may be strided but no two elements may share memory.
// Their values are changed during the call and restored. Throws InvalidArgument when no input can
// be checked and whatever `function` throws.
GradCheckResult GradCheck(const DifferentiableFunction& function, TensorSpan inputs,
                          const GradCheckOptions& options = {});

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_GRAD_CHECK_H_
