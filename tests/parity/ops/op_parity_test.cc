// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Every row of the op table and every module that has a counterpart computes what PyTorch does:
// outputs, gradients and in-place forms, against goldens/ (make_op_goldens.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tests/parity/ops/case_runner.h"
#include "lockstep/tests/parity/ops/compare.h"
#include "lockstep/tests/parity/ops/families.h"
#include "lockstep/tests/parity/ops/golden_case.h"

namespace lockstep::parity {
namespace {

const std::vector<GoldenCase>& CasesOf(const std::string& family) {
  static auto& cases = *new std::map<std::string, std::vector<GoldenCase>>;
  auto found = cases.find(family);
  if (found == cases.end()) found = cases.emplace(family, ReadGoldenCases(family)).first;
  return found->second;
}

// No gradient and one of zeros are the same thing.
void CheckGradient(const Tensor& actual, const std::optional<Golden>& golden, Near near,
                   int64_t terms, size_t i) {
  if (!actual.defined() && !golden.has_value()) return;
  Golden zeros;
  if (!golden.has_value()) {
    zeros.dtype = actual.dtype();
    zeros.floats.assign(static_cast<size_t>(actual.numel()), 0);
  }
  if (!actual.defined()) {
    for (const double value : golden->floats) EXPECT_EQ(value, 0) << "no gradient of input " << i;
    return;
  }
  EXPECT_EQ(GradientDifference(actual, golden.value_or(zeros), near, terms), "")
      << "gradient of input " << i;
}

// How many elements of the outputs one of the gradient belongs to, at least 1.
int64_t Terms(const std::vector<Tensor>& outputs, const Tensor& gradient) {
  int64_t elements = 0;
  for (const Tensor& output : outputs) elements += output.numel();
  return gradient.defined() && gradient.numel() > 0
             ? std::max<int64_t>(1, elements / gradient.numel())
             : 1;
}

void CheckCase(const GoldenCase& test_case, const GoldenResult& golden) {
  const CaseRun run = RunCase(test_case, golden);
  ASSERT_EQ(run.outputs.size(), golden.outputs.size());
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    EXPECT_EQ(run.outputs[i].shape(), test_case.shapes[i]);
    EXPECT_EQ(OutputDifference(run.outputs[i], golden.outputs[i], test_case.near), "")
        << "output " << i;
  }
  for (size_t i = 0; i < run.gradients.size(); ++i) {
    CheckGradient(run.gradients[i], golden.gradients[i], test_case.near,
                  Terms(run.outputs, run.gradients[i]), i);
  }
  for (const RowRecorder::Call& call : run.calls) {
    const OpInfo& info = GetOpInfo(call.op);
    const bool in_place = info.kind == OpKind::kElementwise || info.kind == OpKind::kBroadcasting ||
                          call.op == OpId::kDropout;
    if (!in_place || call.backward || info.name != test_case.row) continue;
    EXPECT_EQ(InPlaceDifference(call), "") << "in place";
  }
}

class OpParity : public testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(OpParity, OutputsAndGradients) {
  const auto& [family, dtype] = GetParam();
  int count = 0;
  for (const GoldenCase& test_case : CasesOf(family)) {
    for (const GoldenResult& golden : test_case.results) {
      if (golden.dtype != dtype) continue;
      SCOPED_TRACE(absl::StrCat(test_case.op, "/", test_case.name));
      CheckCase(test_case, golden);
      ++count;
    }
  }
  // Some families run in floating-point dtypes only.
  EXPECT_TRUE(count > 0 || IsReducedFloat(dtype) || !IsFloatingPoint(dtype));
}

INSTANTIATE_TEST_SUITE_P(Families, OpParity,
                         testing::Combine(testing::ValuesIn(Families()),
                                          testing::Values(DType::kFloat32, DType::kBFloat16,
                                                          DType::kFloat16, DType::kFloat64,
                                                          DType::kInt64, DType::kInt32,
                                                          DType::kUInt8, DType::kBool)),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "_",
                                               DTypeName(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace lockstep::parity
