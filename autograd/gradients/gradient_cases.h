// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Functions to check gradients of: for each differentiable row, over broadcast, strided, empty and
// zero-dimensional inputs. For tests.
#ifndef LOCKSTEP_AUTOGRAD_GRADIENTS_GRADIENT_CASES_H_
#define LOCKSTEP_AUTOGRAD_GRADIENTS_GRADIENT_CASES_H_

#include <functional>
#include <string>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd {

struct GradientCase {
  std::string row;
  std::string variant;
  // float64 leaves; made when the test runs.
  std::function<std::vector<Tensor>()> inputs;
  std::function<std::vector<Tensor>(TensorSpan)> function;
  bool second_order = true;  // false: the gradient is constant zero
};

std::vector<GradientCase> AllGradientCases();

// A leaf of distinct values in [-2, 2] (up to 101 of them), none within 0.01 of 0 or of another.
Tensor GradientCaseData(const Shape& shape, int seed = 0);

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_GRADIENTS_GRADIENT_CASES_H_
