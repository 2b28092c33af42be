// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A line of goldens/<family>.json, as make_op_goldens.py writes it.
#ifndef LOCKSTEP_TESTS_PARITY_OPS_GOLDEN_CASE_H_
#define LOCKSTEP_TESTS_PARITY_OPS_GOLDEN_CASE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::parity {

// How an input is made: inputs.h.
struct InputSpec {
  std::string profile;
  Shape shape;
  std::string layout;
  std::optional<DType> dtype;  // absent: the dtype that the case runs in
};

// Elements in row-major order.
struct Golden {
  DType dtype = DType::kFloat32;
  std::vector<double> floats;     // of a floating-point dtype
  std::vector<int64_t> integers;  // of any other
  // What PyTorch's own result in the dtype is, where that is not finite and differs: either will
  // do. Empty when there is no such element.
  std::vector<double> own;
  // Of a gradient: tolerances that PyTorch's own in the dtype is away from the golden, at least 1.
  double slack = 1;
  size_t size() const { return IsFloatingPoint(dtype) ? floats.size() : integers.size(); }
};

// What a case gives in one dtype.
struct GoldenResult {
  DType dtype;
  std::vector<Golden> outputs;
  std::vector<std::optional<Golden>> gradients;  // of the inputs; absent: none, or zero
};

enum class Near : uint8_t {
  kExact,    // bit for bit
  kValue,    // the same, but for the signs of zeros
  kElement,  // relative to each element
  kOne,      // beside it relative to 1: terms of that order cancel
  kSum       // relative to the largest element: sums whose terms cancel
};

struct GoldenCase {
  std::string op;    // of bindings.h
  std::string name;  // the variant
  std::string row;   // the row of the op table that must run; "" for none of its own
  Near near = Near::kElement;
  uint64_t seed = 0;
  std::vector<InputSpec> inputs;
  nlohmann::json args;
  std::vector<Shape> shapes;  // of the outputs
  std::vector<GoldenResult> results;
};

// Throws NotFound or InvalidArgument.
std::vector<GoldenCase> ReadGoldenCases(const std::string& family);

Shape ParseShape(const nlohmann::json& sizes);

}  // namespace lockstep::parity

#endif  // LOCKSTEP_TESTS_PARITY_OPS_GOLDEN_CASE_H_
