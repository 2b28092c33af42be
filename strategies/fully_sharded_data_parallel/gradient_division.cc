// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/gradient_division.h"

namespace lockstep::strategies {

GradientDivision DivideGradients(int ranks, std::optional<double> divisor, DType reduce_dtype) {
  const double whole = divisor.value_or(ranks);
  if (reduce_dtype == DType::kFloat16) {
    int before = 1;
    while (ranks % before == 0 && ranks / before > before) before *= 2;
    return {comm::ReduceOp::kPreMultipliedSum, 1.0 / before, comm::ReduceOp::kSum, before / whole};
  }
  if (divisor.has_value()) {
    return {comm::ReduceOp::kPreMultipliedSum, 1 / whole, comm::ReduceOp::kSum, 1};
  }
  return {};
}

}  // namespace lockstep::strategies
