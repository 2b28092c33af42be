// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Sizes in flags of tools.
#ifndef LOCKSTEP_TOOLS_SIZE_TEXT_H_
#define LOCKSTEP_TOOLS_SIZE_TEXT_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::tools {

// Bytes of each of "4096,1KiB,64MiB,1GiB". `max_gib`: the largest allowed. Throws InvalidArgument
// that names the flag, its value and what is allowed.
std::vector<int64_t> ParseSizes(absl::string_view flag, absl::string_view value, int max_gib);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_SIZE_TEXT_H_
