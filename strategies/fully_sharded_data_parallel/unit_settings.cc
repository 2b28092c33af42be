// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/unit_settings.h"

#include <optional>

namespace lockstep::strategies {

bool IsHybrid(ShardingStrategy strategy) {
  return strategy == ShardingStrategy::kHybridShard ||
         strategy == ShardingStrategy::kHybridShardGradOp;
}

bool KeepsParameters(const FullyShardedDataParallelOptions& options) {
  switch (options.sharding_strategy) {
    case ShardingStrategy::kFullShard:
    case ShardingStrategy::kHybridShard:
      return !options.reshard_after_forward;
    default:
      return true;
  }
}

bool ReshardsAfterForward(const FullyShardedDataParallelOptions& options, const UnitPlan& unit,
                          bool is_root) {
  // Backward begins with the root: letting its parameters go would be for nothing.
  return unit.options.reshard_after_forward.value_or(!KeepsParameters(options) && !is_root);
}

FlatSettings SettingsOf(const FullyShardedDataParallelOptions& options, const UnitPlan& unit,
                        const FlatPlan& flat, bool is_root, bool shares) {
  std::optional<DType> param_dtype = unit.options.param_dtype;
  std::optional<DType> reduce_dtype = unit.options.reduce_dtype;
  if (!IsFloatingPoint(flat.dtype)) {
    param_dtype = reduce_dtype = std::nullopt;
  } else if (!unit.full_precision) {
    if (!param_dtype) param_dtype = options.mixed_precision.param_dtype;
    if (!reduce_dtype) reduce_dtype = options.mixed_precision.reduce_dtype;
  }
  FlatSettings settings;
  settings.param_dtype = param_dtype.value_or(flat.dtype);
  settings.reduce_dtype = reduce_dtype.value_or(settings.param_dtype);
  // The shard may lie in the gathered memory when that has the same contents and always stays.
  const bool stays = KeepsParameters(options) && !ReshardsAfterForward(options, unit, is_root);
  settings.keeps_full =
      (stays || !shares) && !options.cpu_offload && settings.param_dtype == flat.dtype;
  return settings;
}

}  // namespace lockstep::strategies
