// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What parity tests share: golden files, and random values that PyTorch's side draws alike
// (philox.py).
#ifndef LOCKSTEP_TESTS_PARITY_GOLDENS_H_
#define LOCKSTEP_TESTS_PARITY_GOLDENS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::parity {

// Parses a golden file, whose path is relative to the root of the source tree.
nlohmann::json ReadGoldens(const std::string& path);

// offset + scale * z of `dtype`, z standard normal, by way of float32: the same values in every
// dtype.
Tensor DrawNormal(const Shape& shape, double offset, double scale, Generator& generator,
                  DType dtype);

// |a - b| / |b| over all elements, 2-norms; b in row-major order. Infinite when a has NaN.
double RelativeDistance(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace lockstep::parity

#endif  // LOCKSTEP_TESTS_PARITY_GOLDENS_H_
