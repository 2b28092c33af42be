// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Parts of reading deepspeed_config.h: its optimizers and schedulers.
#ifndef LOCKSTEP_STRATEGIES_ENGINE_DEEPSPEED_SECTIONS_H_
#define LOCKSTEP_STRATEGIES_ENGINE_DEEPSPEED_SECTIONS_H_

#include <optional>

#include "lockstep/strategies/engine/deepspeed_config.h"
#include "lockstep/strategies/engine/json_section.h"

namespace lockstep::engine::internal {

// "optimizer" and "scheduler" of the file's object; nothing when absent or null.
std::optional<DeepSpeedOptimizer> ReadOptimizer(JsonSection& root, const DeepSpeedAutos& autos,
                                                std::vector<std::string>* ignored);
std::optional<DeepSpeedScheduler> ReadScheduler(JsonSection& root, const DeepSpeedAutos& autos,
                                                std::vector<std::string>* ignored);

}  // namespace lockstep::engine::internal

#endif  // LOCKSTEP_STRATEGIES_ENGINE_DEEPSPEED_SECTIONS_H_
