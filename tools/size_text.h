// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Sizes in flags of tools.
#ifndef LOCKSTEP_TOOLS_SIZE_TEXT_H_
#define LOCKSTEP_TOOLS_SIZE_TEXT_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace lockstep::tools {

// Bytes of "4096", "1KiB", "64MiB" or "1GiB"; 0 for anything else and unless it is 1 to
// `max_bytes`.
int64_t ParseSize(absl::string_view text, int64_t max_bytes);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_SIZE_TEXT_H_
