// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/hook_setting.h"

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"
#include "lockstep/strategies/distributed_data_parallel/power_sgd.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::strategies {

std::shared_ptr<CommunicationHook> ParseCommunicationHook(absl::string_view text) {
  if (text == "none") return nullptr;
  if (text == "noop") return std::make_shared<NoOpHook>();
  if (text == "fp16") return std::make_shared<CompressionHook>(DType::kFloat16);
  if (text == "bf16") return std::make_shared<CompressionHook>(DType::kBFloat16);
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  PowerSgdOptions options;
  if (parts[0] == "powersgd" && parts.size() <= 3 &&
      (parts.size() < 2 || absl::SimpleAtoi(parts[1], &options.rank)) &&
      (parts.size() < 3 || absl::SimpleAtoi(parts[2], &options.start_step))) {
    return std::make_shared<PowerSgdHook>(options);
  }
  throw InvalidArgumentError(
      absl::StrCat("communication hook '", text,
                   "': give none, noop, fp16, bf16, powersgd, powersgd:RANK or "
                   "powersgd:RANK:START, such as powersgd:2:500"));
}

}  // namespace lockstep::strategies
