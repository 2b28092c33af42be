// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Every public function and module of the parity cases on a device that is not the current one:
// the same values, there. And over two devices: refused, naming both.

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/thread_state.h"
#include "lockstep/tests/parity/ops/bindings.h"
#include "lockstep/tests/parity/ops/families.h"
#include "lockstep/tests/parity/ops/golden_case.h"
#include "lockstep/tests/parity/ops/inputs.h"

namespace lockstep::parity {
namespace {

// All inputs on `device`, but number `elsewhere` on cpu:2.
std::vector<Tensor> Inputs(const GoldenCase& test_case, Device device,
                           std::optional<size_t> elsewhere = std::nullopt) {
  std::vector<Tensor> inputs;
  for (const InputSpec& spec : test_case.inputs) {
    const size_t i = inputs.size();
    const Tensor stored = DrawInput(spec.profile, StoredShape(spec.shape, spec.layout),
                                    spec.dtype.value_or(test_case.results.front().dtype),
                                    test_case.seed, static_cast<uint64_t>(i));
    inputs.push_back(ViewAs(To(stored, elsewhere == i ? Cpu(2) : device), spec.shape, spec.layout));
  }
  return inputs;
}

// The error's message, or nothing when there is none.
std::optional<std::string> Refusal(const GoldenCase& test_case, const std::vector<Tensor>& inputs) {
  const DeviceScope scope(Cpu(1));  // for tensors that the case itself makes
  try {
    Bindings().at(test_case.op)(inputs, test_case.args);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return error.message();
  }
  return std::nullopt;
}

class DevicesTest : public testing::TestWithParam<std::string> {};

TEST_P(DevicesTest, TwoDevicesAreRefusedNamingBoth) {
  for (const GoldenCase& test_case : ReadGoldenCases(GetParam())) {
    // These make the target anew, from the input's values.
    if (absl::EndsWith(test_case.name, "_ignored")) continue;
    for (size_t i = 0; test_case.inputs.size() > 1 && i < test_case.inputs.size(); ++i) {
      const std::optional<std::string> refusal =
          Refusal(test_case, Inputs(test_case, Cpu(1), /*elsewhere=*/i));
      const std::string what = absl::StrCat(test_case.op, "/", test_case.name, ", input ", i);
      ASSERT_TRUE(refusal.has_value()) << what << " is taken from another device";
      EXPECT_TRUE(absl::StrContains(*refusal, "cpu:1") && absl::StrContains(*refusal, "cpu:2"))
          << what << ": " << *refusal;
    }
  }
}

TEST_P(DevicesTest, ResultsAreWhereTheInputsAre) {
  for (const GoldenCase& test_case : ReadGoldenCases(GetParam())) {
    if (test_case.inputs.empty()) continue;
    const Binding& function = Bindings().at(test_case.op);
    const std::string what = absl::StrCat(test_case.op, "/", test_case.name);
    std::vector<Tensor> there;
    // These cases make weights or a flag themselves.
    std::optional<DeviceScope> scope;
    if (absl::EndsWith(test_case.op, "CrossEntropy") ||
        absl::EndsWith(test_case.op, "CrossEntropyLoss") || test_case.op == "UnscaleAndCheck") {
      scope.emplace(Cpu(1));
    }
    try {
      there = function(Inputs(test_case, Cpu(1)), test_case.args);
    } catch (const Error& error) {
      ADD_FAILURE() << what << ": " << error.message();
      continue;
    }
    for (const Tensor& output : there) {
      if (!output.defined()) continue;
      EXPECT_EQ(output.device(), Cpu(1)) << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DevicesTest, testing::ValuesIn(Families()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep::parity
