// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What Engine does with a configuration, known without ranks: a program checks a file with it
// before it starts any.
//
//   engine::DeepSpeedConfig config = engine::LoadDeepSpeedConfig("ds_config.json", ranks);
//   engine::CheckSupported(config);
#ifndef LOCKSTEP_STRATEGIES_ENGINE_ENGINE_SUPPORT_H_
#define LOCKSTEP_STRATEGIES_ENGINE_ENGINE_SUPPORT_H_

#include "lockstep/strategies/engine/deepspeed_config.h"

namespace lockstep::engine {

// Throws Unimplemented for settings that each exist and exclude each other here, with what to use.
void CheckSupported(const DeepSpeedConfig& config);

// Whether the optimizer's state, and with it the parameters, are on the host device.
bool Offloads(const DeepSpeedConfig& config);

// Whether a rank keeps a part of the gradients (FullyShardedDataParallel), or the whole
// (DistributedDataParallel): stages 2 and 3, and 1 with an optimizer on the host. That one is done
// as stage 2 is, with the same numbers, because a part of the gradients is all that the host needs.
bool ShardsGradients(const DeepSpeedConfig& config);

}  // namespace lockstep::engine

#endif  // LOCKSTEP_STRATEGIES_ENGINE_ENGINE_SUPPORT_H_
