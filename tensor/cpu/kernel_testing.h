// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the tests of kernels share: the same tensor in several layouts, its elements as bits, and
// comparison with references computed in double.
#ifndef LOCKSTEP_TENSOR_CPU_KERNEL_TESTING_H_
#define LOCKSTEP_TENSOR_CPU_KERNEL_TESTING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cpu {

inline constexpr DType kFloatDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16,
                                         DType::kFloat64};
inline constexpr DType kIntegerDTypes[] = {DType::kInt64, DType::kInt32, DType::kUInt8};

// One logical tensor in the layouts that kernels meet: row-major, dimensions stored in reverse
// order, every second element of a larger tensor.
std::vector<Tensor> Layouts(const Tensor& packed);

// `count` numbers in [low, high], different at each position; the same every time for a `seed`.
std::vector<double> Numbers(int64_t count, double low, double high, uint64_t seed = 1);

Tensor MakeTensor(const std::vector<double>& values, const Shape& shape, DType dtype);

// The elements in row-major order, as the bytes they are.
std::vector<uint64_t> Bits(const Tensor& tensor);

// The largest relative error of one rounding to `dtype` (0 for integers).
double RoundingUnit(DType dtype);

// Compares element by element: NaN with NaN, infinities exactly, others within
// tolerance * max(|expected|, floor). Fails the test, naming the first that differs.
void ExpectClose(const Tensor& actual, const std::vector<double>& expected, double tolerance,
                 const std::string& what, double floor = 1e-30);

// Runs `function` with 1, 2 and 3 threads and expects the same bits.
void ExpectSameForThreads(const std::string& what, const std::function<Tensor()>& function);

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_KERNEL_TESTING_H_
