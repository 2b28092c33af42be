// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tools/size_text.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"

namespace lockstep::tools {
namespace {

// 0 for what is no size, or not 1 to `max_bytes`.
int64_t ParseSize(absl::string_view text, int64_t max_bytes) {
  constexpr std::pair<const char*, int> kUnits[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
  int shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    if (absl::ConsumeSuffix(&text, unit)) {
      shift = bits;
      break;
    }
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 1 || value > (max_bytes >> shift)) return 0;
  return value << shift;
}

}  // namespace

std::vector<int64_t> ParseSizes(absl::string_view flag, absl::string_view value, int max_gib) {
  std::vector<int64_t> sizes;
  for (const absl::string_view text : absl::StrSplit(value, ',')) {
    sizes.push_back(ParseSize(text, int64_t{max_gib} << 30));
    if (sizes.back() == 0) {
      throw InvalidArgumentError(
          absl::StrCat("--", flag, "=", value, ": \"", text, "\" is no size: sizes are 1 to ",
                       max_gib, "GiB: bytes, or a number of KiB, MiB or GiB (see --help)"));
    }
  }
  return sizes;
}

}  // namespace lockstep::tools
