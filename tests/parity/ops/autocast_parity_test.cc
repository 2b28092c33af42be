// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Autocast's lists are PyTorch's: the dtypes of every binding's results under a scope
// (make_autocast_goldens.py). On the CPU they are computed; for CUDA, of which there may be none
// here, the class in the op table must say the same.

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tests/parity/goldens.h"
#include "lockstep/tests/parity/ops/bindings.h"
#include "lockstep/tests/parity/ops/golden_case.h"
#include "lockstep/tests/parity/ops/inputs.h"

namespace lockstep::parity {
namespace {

using nlohmann::json;

// Where Lockstep differs: docs/amp.md says why. By binding and kind of inputs.
const std::map<std::string, std::string>& Differences() {
  static const auto& differences = *new std::map<std::string, std::string>{
      {"MseLoss low", "bfloat16"},  // plain ops; PyTorch: float32
      {"nn.MseLoss low", "bfloat16"},
      {"GlobalNorm low", "float32"},  // PyTorch: bfloat16
  };
  return differences;
}

const json& Goldens() {
  static const auto& goldens = *new json(ReadGoldens("tests/parity/ops/autocast_goldens.json"));
  return goldens;
}

const GoldenCase& CaseOf(const json& line) {
  static auto& families = *new std::map<std::string, std::vector<GoldenCase>>;
  const std::string family = line["family"];
  if (!families.contains(family)) families[family] = ReadGoldenCases(family);
  for (const GoldenCase& found : families[family]) {
    if (line["op"] == found.op && line["name"] == found.name) return found;
  }
  throw std::runtime_error(absl::StrCat("no case ", line.dump()));
}

std::vector<Tensor> InputsOf(const GoldenCase& test_case, const std::string& kind, DType low) {
  std::vector<Tensor> inputs;
  bool first = true;
  for (const InputSpec& spec : test_case.inputs) {
    DType dtype = spec.dtype.value_or(kind == "float32" ? DType::kFloat32 : low);
    if (kind == "mixed" && !spec.dtype && first) {
      dtype = DType::kFloat32;
      first = false;
    }
    const Tensor stored = DrawInput(spec.profile, StoredShape(spec.shape, spec.layout), dtype,
                                    /*seed=*/1, static_cast<uint64_t>(inputs.size()));
    inputs.push_back(ViewAs(stored, spec.shape, spec.layout));
  }
  return inputs;
}

std::string DTypesOf(const std::vector<Tensor>& tensors) {
  return absl::StrJoin(tensors, " ", [](std::string* out, const Tensor& tensor) {
    absl::StrAppend(out, DTypeName(tensor.dtype()));
  });
}

std::string Joined(const json& names) {
  return absl::StrJoin(names.get<std::vector<std::string>>(), " ");
}

TEST(AutocastParity, CpuResultsHaveTorchsDTypes) {
  int count = 0;
  for (const json& line : Goldens()["cases"]) {
    for (const auto& [kind, names] : line["cpu"].items()) {
      if (!names.is_array()) continue;  // PyTorch refuses: Lockstep may take more
      const std::string op = line["op"];
      SCOPED_TRACE(absl::StrCat(op, "/", line["name"].get<std::string>(), " ", kind));
      const GoldenCase& test_case = CaseOf(line);
      const std::vector<Tensor> inputs = InputsOf(test_case, kind, DType::kBFloat16);
      const amp::Autocast autocast;
      const std::vector<Tensor> outputs = Bindings().at(op)(inputs, test_case.args);
      const auto difference = Differences().find(absl::StrCat(op, " ", kind));
      EXPECT_EQ(DTypesOf(outputs),
                difference != Differences().end() ? difference->second : Joined(names));
      ++count;
    }
  }
  EXPECT_GT(count, 200);
}

// The dtype that the class says, of float32 or of float16 inputs.
std::string OfClass(AmpClass amp, bool low_inputs) {
  switch (amp) {
    case AmpClass::kLowPrecision:
      return "float16";
    case AmpClass::kFp32:
    case AmpClass::kFp32IfUnset:
      return "float32";
    case AmpClass::kUntouched:
    case AmpClass::kPromote:
      return low_inputs ? "float16" : "float32";
    case AmpClass::kRefused:
      break;
  }
  return "refused";
}

TEST(AutocastParity, CudaClassesAreTorchs) {
  int count = 0;
  for (const json& line : Goldens()["cases"]) {
    const GoldenCase& test_case = CaseOf(line);
    // A module or a composition has no row of its own name; its rows have lines of theirs.
    if (test_case.row.empty() || line["op"] != test_case.row) continue;
    if (line["family"] == "updates") continue;  // no autocast around a step
    const AmpClass amp = GetOpInfo(FindOp(test_case.row)).amp_cuda;
    for (const char* kind : {"float32", "low"}) {
      const json& names = line["cuda"][kind];
      if (!names.is_array()) continue;
      const std::string name = names[0];
      if (name == "bool" || name == "int64" || test_case.row == "Cast") continue;
      EXPECT_EQ(OfClass(amp, std::string(kind) == "low"), name) << test_case.row << " " << kind;
      ++count;
    }
  }
  EXPECT_GT(count, 80);
}

}  // namespace
}  // namespace lockstep::parity
