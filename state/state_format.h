// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The "format" that the JSON file of a state begins with, by which one of another version is told
// from a damaged one.
#ifndef LOCKSTEP_STATE_STATE_FORMAT_H_
#define LOCKSTEP_STATE_STATE_FORMAT_H_

#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace lockstep::state {

// Throws DataLoss, with what there is instead and what to do, unless `json` is an object of this
// format. What could not be parsed (a discarded value) is none.
void CheckFormat(const nlohmann::ordered_json& json, absl::string_view format);

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_STATE_FORMAT_H_
