// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The inputs of parity cases, element for element those of values.py. A profile says which values,
// a layout how the tensor lies in memory.
#ifndef LOCKSTEP_TESTS_PARITY_OPS_INPUTS_H_
#define LOCKSTEP_TESTS_PARITY_OPS_INPUTS_H_

#include <cstdint>
#include <string>

#include "lockstep/tensor/tensor.h"

namespace lockstep::parity {

// Row-major. Profiles:
//   unit       in [-2, 2); integers in [-9, 9] (uint8: [0, 9])
//   positive   in [0.25, 3.25); integers in [1, 5]
//   grid       whole numbers in [-3, 3] (uint8: [0, 3]), for ties and kinks
//   small      0, 1, 2 or 3
//   each       one after the other: NaN, infinities, zeros, denormal, extreme and unit numbers;
//              the limits of an integer dtype
//   nonfinite  unit, each seventh NaN or infinite
//   wide       finite numbers of any magnitude
//   index:N    integers in [0, N)
//   first_column  bool, true in each sixth place, from the first on
Tensor DrawInput(const std::string& profile, const Shape& shape, DType dtype, uint64_t seed,
                 uint64_t stream);

// The shape of the row-major tensor of which an input of `shape` is a view, and that view. Layouts:
// dense, transposed (the last two dimensions), reversed (all), sliced (every second of the last
// dimension, from the second on), offset (two rows left out), expanded (the first dimension).
Shape StoredShape(const Shape& shape, const std::string& layout);
Tensor ViewAs(const Tensor& stored, const Shape& shape, const std::string& layout);

}  // namespace lockstep::parity

#endif  // LOCKSTEP_TESTS_PARITY_OPS_INPUTS_H_
