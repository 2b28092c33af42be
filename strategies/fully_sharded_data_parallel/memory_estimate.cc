// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/memory_estimate.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/fully_sharded_data_parallel/flat_layout.h"
#include "lockstep/strategies/fully_sharded_data_parallel/unit_plan.h"
#include "lockstep/strategies/fully_sharded_data_parallel/unit_settings.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

void Check(const FullyShardedDataParallelOptions& options, const MemoryEstimateOptions& estimate) {
  if (estimate.ranks < 1 || estimate.optimizer_values < 0) {
    throw InvalidArgumentError(absl::StrCat("EstimateMemory: ranks is ", estimate.ranks,
                                            " and optimizer_values ", estimate.optimizer_values,
                                            "; give at least 1 and 0"));
  }
  if (estimate.zero_optimizer && options.sharding_strategy != ShardingStrategy::kNoShard) {
    throw InvalidArgumentError(
        "EstimateMemory: zero_optimizer is for kNoShard; the other strategies share the "
        "optimizer's state anyway");
  }
  if (options.reshard_ranks < 0 ||
      (options.reshard_ranks > 1 && estimate.ranks % options.reshard_ranks != 0)) {
    throw InvalidArgumentError(absl::StrCat("EstimateMemory: reshard_ranks is ",
                                            options.reshard_ranks, " of ", estimate.ranks,
                                            " ranks; give a divisor"));
  }
}

// A unit's bytes while it is gathered.
struct Gathered {
  int64_t parameters = 0;
  int64_t sums = 0;
};

// Of the `count` largest.
int64_t Largest(std::vector<int64_t> bytes, size_t count) {
  std::sort(bytes.begin(), bytes.end(), std::greater<>());
  int64_t total = 0;
  for (size_t i = 0; i < std::min(count, bytes.size()); ++i) total += bytes[i];
  return total;
}

class Estimate {
 public:
  Estimate(const FullyShardedDataParallelOptions& options, const MemoryEstimateOptions& estimate)
      : options_(options),
        shares_(options.sharding_strategy == ShardingStrategy::kNoShard ? 1 : estimate.ranks),
        values_(estimate.optimizer_values) {}

  // `elements` that this rank keeps, `whole` of them in memory.
  void AddState(DType dtype, bool trainable, int64_t elements, int64_t whole) {
    result.parameters += whole * ItemSize(dtype);
    if (!trainable) return;
    const int64_t value = IsReducedFloat(dtype) ? ItemSize(DType::kFloat32) : ItemSize(dtype);
    result.gradients += elements * ItemSize(dtype);
    result.optimizer += elements * value * values_;
  }

  void AddUnit(const UnitPlan& unit, bool is_root) {
    Gathered gathered;
    for (const FlatPlan& flat : unit.flats) {
      std::vector<int64_t> numels;
      for (const auto& [name, parameter] : flat.parameters) numels.push_back(parameter.numel());
      const FlatLayout layout(numels, shares_);
      const FlatSettings settings = SettingsOf(options_, unit, flat, is_root, shares_ > 1);
      AddState(flat.dtype, flat.trainable, layout.shard_numel(),
               settings.keeps_full ? layout.numel() : layout.shard_numel());
      if (!settings.keeps_full) {
        gathered.parameters += layout.numel() * ItemSize(settings.param_dtype);
      }
      if (flat.trainable) gathered.sums += layout.numel() * ItemSize(settings.reduce_dtype);
    }
    if (is_root) {
      result.gathered += gathered.parameters + gathered.sums;
      return;
    }
    sums_.push_back(gathered.sums);
    if (!ReshardsAfterForward(options_, unit, is_root)) {
      result.gathered += gathered.parameters;
      return;
    }
    passing_.push_back(gathered.parameters);
    if (options_.reshard_ranks > 1) {
      result.gathered += gathered.parameters / options_.reshard_ranks;
    }
  }

  MemoryEstimate Finish() {
    result.gathered += Largest(passing_, 3);
    if (!options_.cpu_offload) {
      result.gathered += Largest(sums_, 2);
    } else {
      // A unit's sums; parts that come from the host, and go there.
      result.gathered += Largest(sums_, 1) + 3 * Largest(sums_, 1) / shares_;
    }
    return result;
  }

  MemoryEstimate result;

 private:
  const FullyShardedDataParallelOptions& options_;
  const int64_t shares_;
  const int64_t values_;
  std::vector<int64_t> passing_;  // of units that let go after forward
  std::vector<int64_t> sums_;     // of units but the root
};

}  // namespace

MemoryEstimate EstimateMemory(nn::Module& module, const FullyShardedDataParallelOptions& options,
                              const MemoryEstimateOptions& estimate) {
  Check(options, estimate);
  Estimate sum(options, estimate);
  absl::flat_hash_set<const TensorImpl*> sharded;
  bool is_root = true;
  for (const UnitPlan& unit : PlanUnits(module, options)) {
    sum.AddUnit(unit, is_root);
    is_root = false;
    for (const FlatPlan& flat : unit.flats) {
      for (const auto& [name, parameter] : flat.parameters) sharded.insert(&parameter.impl());
    }
  }
  if (estimate.zero_optimizer) sum.result.optimizer /= estimate.ranks;
  for (const auto& [name, parameter] : module.NamedParameters()) {
    if (sharded.count(&parameter.impl()) > 0) continue;
    sum.AddState(parameter.dtype(), autograd::RequiresGrad(parameter), parameter.numel(),
                 parameter.numel());
  }
  return sum.Finish();
}

}  // namespace lockstep::strategies
