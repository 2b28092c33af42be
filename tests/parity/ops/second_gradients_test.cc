// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// The gradients of the gradients of every op that has any are PyTorch's, in float64, against
// goldens/second_gradients.json (make_second_gradient_goldens.py).

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tests/parity/goldens.h"
#include "lockstep/tests/parity/ops/bindings.h"
#include "lockstep/tests/parity/ops/golden_case.h"
#include "lockstep/tests/parity/ops/inputs.h"

namespace lockstep::parity {
namespace {

constexpr DType kDType = DType::kFloat64;
// Norm of the difference over norm of the gradient. One rounding of float64 is 2.2e-16; formulas of
// second gradients have some fifty, and cancel.
constexpr double kBound = 1e-12;

Tensor Numbers(const Shape& shape, uint64_t seed, size_t stream) {
  return DrawInput("unit", shape, kDType, seed, static_cast<uint64_t>(stream));
}

// With respect to the leaves and then to the gradients of the outputs.
std::vector<Tensor> SecondGradients(const GoldenCase& test_case) {
  std::vector<Tensor> leaves, inputs, wanted;
  for (const InputSpec& spec : test_case.inputs) {
    leaves.push_back(DrawInput(spec.profile, StoredShape(spec.shape, spec.layout),
                               spec.dtype.value_or(kDType), test_case.seed, leaves.size()));
    if (IsFloatingPoint(leaves.back().dtype())) {
      wanted.push_back(autograd::SetRequiresGrad(leaves.back(), true));
    }
    inputs.push_back(ViewAs(leaves.back(), spec.shape, spec.layout));
  }
  const std::vector<Tensor> outputs = Bindings().at(test_case.op)(inputs, test_case.args);
  std::vector<Tensor> roots, weights;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!autograd::RequiresGrad(outputs[i])) continue;
    roots.push_back(outputs[i]);
    const Tensor weight = Numbers(outputs[i].shape(), test_case.seed, 100 + i);
    weights.push_back(autograd::SetRequiresGrad(To(weight, outputs[i].device()), true));
  }
  const std::vector<Tensor> first = autograd::Gradients(
      roots, wanted, {.grad_outputs = weights, .create_graph = true, .allow_unused = true});
  Tensor total = Zeros({}, {.dtype = kDType});
  for (size_t i = 0; i < first.size(); ++i) {
    if (!first[i].defined()) continue;
    total = total + Sum(first[i] * Numbers(first[i].shape(), test_case.seed, 200 + i));
  }
  wanted.insert(wanted.end(), weights.begin(), weights.end());
  return autograd::Gradients({total}, wanted, {.allow_unused = true});
}

// No gradient and one of zeros are the same thing.
void ExpectNear(const Tensor& actual, const std::optional<Golden>& golden) {
  const std::vector<double> zeros(actual.defined() ? static_cast<size_t>(actual.numel())
                                  : golden         ? golden->floats.size()
                                                   : 0);
  const std::vector<double> values = actual.defined() ? actual.ToVector<double>() : zeros;
  const std::vector<double>& expected = golden ? golden->floats : zeros;
  ASSERT_EQ(values.size(), expected.size());
  if (values == expected) return;  // zeros have no relative distance
  EXPECT_LT(RelativeDistance(values, expected), kBound);
}

TEST(SecondGradientsTest, ArePyTorchs) {
  std::set<std::string> ops;
  for (const GoldenCase& test_case : ReadGoldenCases("second_gradients")) {
    SCOPED_TRACE(absl::StrCat(test_case.op, "/", test_case.name));
    ASSERT_EQ(test_case.results.size(), 1u);
    const std::vector<std::optional<Golden>>& expected = test_case.results[0].gradients;
    const std::vector<Tensor> actual = SecondGradients(test_case);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectNear(actual[i], expected[i]);
    }
    ops.insert(test_case.op);
  }
  EXPECT_GE(ops.size(), 50u);
}

}  // namespace
}  // namespace lockstep::parity
