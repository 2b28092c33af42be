// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Communication hooks by name, for programs that take them from flags.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_HOOK_SETTING_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_HOOK_SETTING_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "lockstep/strategies/distributed_data_parallel/communication_hook.h"

namespace lockstep::strategies {

// "none" (null), "noop", "fp16", "bf16", or "powersgd", "powersgd:RANK", "powersgd:RANK:START"
// (PowerSgdOptions::rank and start_step). Throws InvalidArgument that lists these.
std::shared_ptr<CommunicationHook> ParseCommunicationHook(absl::string_view text);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_HOOK_SETTING_H_
