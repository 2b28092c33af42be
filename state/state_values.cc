// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/state_values.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "nlohmann/json.hpp"

namespace lockstep::state {
namespace {

using Json = nlohmann::ordered_json;

Value ValueFromJson(const Json& json, const std::string& name) {
  if (json.is_number_integer() &&
      !(json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX})) {
    return json.get<int64_t>();
  }
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  throw DataLossError(absl::StrCat("value '", name, "' is neither a number nor a text"));
}

}  // namespace

Json ValuesToJson(absl::string_view call, const Values& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) {
    if (const auto* real = std::get_if<double>(&value); real != nullptr && !std::isfinite(*real)) {
      throw InvalidArgumentError(absl::StrCat(call, ": value '", name, "' is ", *real,
                                              "; only finite numbers can be saved"));
    }
    std::visit([&, &key = name](const auto& v) { json[key] = v; }, value);
  }
  return json;
}

Values ValuesFromJson(const Json& json) {
  Values values;
  for (const auto& [name, value] : json.items()) values[name] = ValueFromJson(value, name);
  return values;
}

}  // namespace lockstep::state
