// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Options of normalisations and losses as parity cases write them; functions and modules share
// them.
#ifndef LOCKSTEP_TESTS_PARITY_OPS_NEURAL_OPTIONS_H_
#define LOCKSTEP_TESTS_PARITY_OPS_NEURAL_OPTIONS_H_

#include <nlohmann/json.hpp>

#include "lockstep/tensor/ops/neural.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::parity {

// "none", "mean" (unless said) or "sum".
Reduction ReductionOf(const nlohmann::json& args);
CrossEntropyOptions CrossEntropyOptionsOf(const nlohmann::json& args);
// `target` with every args["ignored"]-th one, from the first on, ignored.
Tensor TargetOf(const Tensor& target, const nlohmann::json& args);

// Inputs x, weight?, bias?; with one parameter args say which is absent.
struct NormParameters {
  Tensor weight, bias;
};
NormParameters NormParametersOf(TensorSpan inputs, const nlohmann::json& args);

}  // namespace lockstep::parity

#endif  // LOCKSTEP_TESTS_PARITY_OPS_NEURAL_OPTIONS_H_
