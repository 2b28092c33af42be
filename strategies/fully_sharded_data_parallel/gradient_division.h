// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How the sum of gradients over ranks is divided. Pure arithmetic.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_GRADIENT_DIVISION_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_GRADIENT_DIVISION_H_

#include <optional>

#include "lockstep/comm/signature.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::strategies {

struct GradientDivision {
  comm::ReduceOp op = comm::ReduceOp::kAverage;            // among the ranks that share
  double factor = 1;                                       // of op, before the sum
  comm::ReduceOp replicate_op = comm::ReduceOp::kAverage;  // among the ranks that replicate
  double after = 1;  // multiplied in the parameters' own dtype when all is summed
};

// `ranks` in all; `divisor` is what the sum is divided by (absent: ranks). In float16 half of the
// division comes before the sum and half after it, each a power of two where ranks is one: a sum of
// many gradients does not overflow, and small ones do not vanish. Otherwise an average is the sum
// in rank order and one multiplication.
GradientDivision DivideGradients(int ranks, std::optional<double> divisor, DType reduce_dtype);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_GRADIENT_DIVISION_H_
