// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tests/parity/ops/golden_case.h"

#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/error.h"
#include "lockstep/tests/parity/goldens.h"

namespace lockstep::parity {
namespace {

double Widen(double value) { return value; }
double Widen(float value) { return static_cast<double>(value); }
double Widen(bfloat16 value) { return static_cast<double>(ToFloat(value)); }
double Widen(float16 value) { return static_cast<double>(ToFloat(value)); }

template <typename T>
void Decode(const std::string& text, std::vector<double>& floats, std::vector<int64_t>& integers) {
  std::string bytes;
  if (!absl::Base64Unescape(text, &bytes) || bytes.size() % sizeof(T) != 0) {
    throw InvalidArgumentError(absl::StrCat("not a golden: ", text));
  }
  for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    if constexpr (IsFloatingPoint(kDTypeOf<T>)) {
      floats.push_back(Widen(value));
    } else {
      integers.push_back(static_cast<int64_t>(value));
    }
  }
}

// "float32:<base64>", and after another colon the own result.
Golden ParseGolden(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() < 2) throw InvalidArgumentError(absl::StrCat("not a golden: ", text));
  Golden golden;
  golden.dtype = ParseDType(parts[0]);
  VisitDType(golden.dtype, [&]<typename T>(TypeTag<T>) {
    Decode<T>(parts[1], golden.floats, golden.integers);
    if (parts.size() > 2) Decode<T>(parts[2], golden.own, golden.integers);
  });
  return golden;
}

GoldenResult ParseResult(const std::string& dtype, const nlohmann::json& json) {
  GoldenResult result{.dtype = ParseDType(dtype), .outputs = {}, .gradients = {}};
  for (const auto& text : json["out"]) result.outputs.push_back(ParseGolden(text));
  for (const auto& text : json["grad"]) {
    result.gradients.emplace_back();
    if (!text.get<std::string>().empty()) result.gradients.back() = ParseGolden(text);
  }
  if (!json.contains("slack")) return result;
  size_t next = 0;
  for (auto& gradient : result.gradients) {
    if (gradient.has_value()) gradient->slack = json["slack"][next];
    ++next;
  }
  return result;
}

InputSpec ParseInput(const nlohmann::json& json) {
  InputSpec input{json[0], ParseShape(json[1]), json[2], std::nullopt};
  if (json.size() > 3) input.dtype = ParseDType(json[3].get<std::string>());
  return input;
}

Near ParseNear(const std::string& name) {
  for (const auto& [known, near] :
       {std::pair("exact", Near::kExact), std::pair("value", Near::kValue),
        std::pair("element", Near::kElement), std::pair("one", Near::kOne),
        std::pair("sum", Near::kSum)}) {
    if (name == known) return near;
  }
  throw InvalidArgumentError(absl::StrCat("no nearness ", name));
}

GoldenCase ParseCase(const nlohmann::json& json) {
  GoldenCase result;
  result.op = json["op"];
  result.name = json["name"];
  result.row = json["row"];
  result.near = ParseNear(json["near"]);
  result.seed = json["seed"];
  for (const auto& input : json["inputs"]) result.inputs.push_back(ParseInput(input));
  result.args = json["args"];
  for (const auto& shape : json["shapes"]) result.shapes.push_back(ParseShape(shape));
  for (const auto& [dtype, golden] : json["dtypes"].items()) {
    result.results.push_back(ParseResult(dtype, golden));
  }
  return result;
}

}  // namespace

Shape ParseShape(const nlohmann::json& sizes) {
  Shape shape;
  for (const auto& size : sizes) shape.push_back(size.get<int64_t>());
  return shape;
}

std::vector<GoldenCase> ReadGoldenCases(const std::string& family) {
  const nlohmann::json file =
      ReadGoldens(absl::StrCat("tests/parity/ops/goldens/", family, ".json"));
  std::vector<GoldenCase> cases;
  for (const auto& json : file["cases"]) cases.push_back(ParseCase(json));
  return cases;
}

}  // namespace lockstep::parity
