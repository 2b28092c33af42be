// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the options mean for a unit and its flat parameters. Pure functions: for what runs, and for
// what estimates its memory.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_UNIT_SETTINGS_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_UNIT_SETTINGS_H_

#include "lockstep/strategies/fully_sharded_data_parallel/options.h"
#include "lockstep/strategies/fully_sharded_data_parallel/unit_plan.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::strategies {

bool IsHybrid(ShardingStrategy strategy);

// Whether units but those with options of their own stay gathered from forward to backward.
bool KeepsParameters(const FullyShardedDataParallelOptions& options);

// Whether the unit lets its parameters go after forward.
bool ReshardsAfterForward(const FullyShardedDataParallelOptions& options, const UnitPlan& unit,
                          bool is_root);

struct FlatSettings {
  DType param_dtype = DType::kFloat32;   // gathered
  DType reduce_dtype = DType::kFloat32;  // gradients added up and reduced
  // The shard is a part of the gathered memory, which stays.
  bool keeps_full = false;
};
// `shares`: there are other ranks to share with.
FlatSettings SettingsOf(const FullyShardedDataParallelOptions& options, const UnitPlan& unit,
                        const FlatPlan& flat, bool is_root, bool shares);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_UNIT_SETTINGS_H_
