// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tools/size_text.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace lockstep::tools {

int64_t ParseSize(absl::string_view text, int64_t max_bytes) {
  constexpr std::pair<const char*, int> kUnits[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
  int shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    if (absl::ConsumeSuffix(&text, unit)) shift = bits;
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 1 || value > (max_bytes >> shift)) return 0;
  return value << shift;
}

}  // namespace lockstep::tools
