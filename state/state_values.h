// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Numbers and texts that a state keeps beside its tensors.
#ifndef LOCKSTEP_STATE_STATE_VALUES_H_
#define LOCKSTEP_STATE_STATE_VALUES_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace lockstep::state {

// Doubles are written so that they read back bit for bit. NaN and infinities are refused.
using Value = std::variant<int64_t, double, std::string>;
using Values = std::map<std::string, Value>;

// An object of them. Throws InvalidArgument, which begins with `call`, for a number that is not
// finite.
nlohmann::ordered_json ValuesToJson(absl::string_view call, const Values& values);

// REQUIRES: an object. Throws DataLoss for what is neither a number nor a text.
Values ValuesFromJson(const nlohmann::ordered_json& json);

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_STATE_VALUES_H_
