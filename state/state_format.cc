// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/state_format.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "nlohmann/json.hpp"

namespace lockstep::state {
namespace {

constexpr size_t kLongestShown = 60;

}  // namespace

void CheckFormat(const nlohmann::ordered_json& json, absl::string_view format) {
  const std::string none = absl::StrCat("not a '", format, "'");
  if (!json.is_object()) {
    throw DataLossError(
        absl::StrCat(none, ", nor any JSON object: it is damaged; go on from an earlier state"));
  }
  const auto found = json.find("format");
  if (found == json.end() || !found->is_string()) {
    throw DataLossError(absl::StrCat(
        none, ": it has no \"format\"; name the folder of a state, or go on from an earlier one"));
  }
  const std::string text = found->get<std::string>();
  if (text == format) return;
  throw DataLossError(absl::StrCat(
      none, " but a '", absl::Utf8SafeCHexEscape(text.substr(0, kLongestShown)),
      "'; read it with the version of the program that wrote it, or go on from another state"));
}

}  // namespace lockstep::state
