// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How near Lockstep's results must be to PyTorch's: tolerances.json has the numbers.
//
// One rounding step of float32 is 2^-23 = 1.2e-7, of float16 2^-10, of bfloat16 2^-7; goldens of
// these dtypes are float64 results rounded once.
#ifndef LOCKSTEP_TESTS_PARITY_OPS_COMPARE_H_
#define LOCKSTEP_TESTS_PARITY_OPS_COMPARE_H_

#include <string>

#include "lockstep/tensor/tensor.h"
#include "lockstep/tests/parity/ops/golden_case.h"

namespace lockstep::parity {

// "", or how `actual` differs: dtype, count, or the worst element. NaN equals NaN; infinities need
// their sign, and so do zeros of kExact and kElement. Integers and bools are always exact.
std::string OutputDifference(const Tensor& actual, const Golden& golden, Near near);

// A gradient whose elements are sums of `terms` each (inputs that were broadcast). Beside what
// `near` says it may differ by what each of the terms loses whose parts are of order 1 and cancel
// (1 - y * y, say), and by twice what PyTorch's own in the dtype does (Golden::slack).
std::string GradientDifference(const Tensor& actual, const Golden& golden, Near near,
                               int64_t terms);

}  // namespace lockstep::parity

#endif  // LOCKSTEP_TESTS_PARITY_OPS_COMPARE_H_
