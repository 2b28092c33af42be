// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The settings of FullyShardedDataParallel. docs/fsdp.md has them in a table beside
// PyTorch's.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_OPTIONS_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharded_communication_hook.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::strategies {

// What each rank keeps only a part of. W: the ranks that share; P: bytes of the parameters.
enum class ShardingStrategy : uint8_t {
  // Parameters, gradients and optimizer state (ZeRO stage 3): gathered before forward, let go after
  // it, gathered again for backward.
  kFullShard = 0,
  // Gradients and optimizer state (ZeRO stage 2): parameters stay from forward to the end of
  // backward. A rank's own part is a part of the full parameters, whose memory stays.
  kShardGradOp,
  // As the two above among the ranks of the mesh dimension "shard"; averaged among those of
  // "replicate".
  kHybridShard,
  kHybridShardGradOp,
  // Nothing: every rank has everything, and gradients are averaged unit by unit.
  kNoShard,
};

// When the parameters of the unit that backward comes to next are asked for.
enum class BackwardPrefetch : uint8_t {
  kPre = 0,  // before this unit's gradients are computed: most overlap, two units in memory
  kPost,     // after them, before they are reduced
  kNone,     // when they are needed
};

struct MixedPrecision {
  // Parameters are gathered and used in this dtype; what is kept, and stepped, is not changed.
  std::optional<DType> param_dtype = std::nullopt;
  // Gradients are added up and reduced in this dtype. Absent: param_dtype.
  std::optional<DType> reduce_dtype = std::nullopt;
  // Floating-point buffers become this dtype at construction.
  std::optional<DType> buffer_dtype = std::nullopt;
  // The root's floating-point outputs are cast to it.
  std::optional<DType> output_dtype = std::nullopt;
  // Floating-point inputs of each unit are cast to its param_dtype.
  bool cast_forward_inputs = true;
  // Modules, by path and type, that compute as they are stored (norms): each that has parameters
  // becomes a unit of its own. Their inputs are cast to their parameters' dtype, and their outputs
  // back.
  std::function<bool(const std::string& name, nn::Module& module)> keep_full_precision = nullptr;
};

// What a unit may have of its own; absent: what FullyShardedDataParallelOptions says.
struct UnitOptions {
  std::optional<bool> reshard_after_forward = std::nullopt;
  std::optional<DType> param_dtype = std::nullopt;
  std::optional<DType> reduce_dtype = std::nullopt;
  friend bool operator==(const UnitOptions&, const UnitOptions&) = default;
};

// A module that is to be a unit.
struct WrappedModule {
  std::string name;  // path below the root
  nn::Module* module = nullptr;
  UnitOptions options = {};
};
// Chooses among the modules below the root (wrap_policy.h); the root is a unit anyway.
using WrapPolicy = std::function<std::vector<WrappedModule>(nn::Module& root)>;

struct FullyShardedDataParallelOptions {
  ShardingStrategy sharding_strategy = ShardingStrategy::kFullShard;
  // Null: one unit, the root.
  WrapPolicy wrap_policy = nullptr;
  // With kFullShard and kHybridShard. Units but the root's let their parameters go after forward;
  // false keeps them, as kShardGradOp. The root keeps them anyway: backward begins with it.
  bool reshard_after_forward = true;
  // Above 1: what stays after forward is a part for so many neighbouring ranks, which gather it for
  // backward among themselves (ZeRO++'s secondary partition). Divides the ranks that share.
  int reshard_ranks = 0;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  // Asks for the next unit of forward, as the iteration before used them, while one computes.
  bool forward_prefetch = true;
  // Gathers under way beside the unit in use; the next one waits for the oldest.
  int max_gathers_in_flight = 2;
  MixedPrecision mixed_precision = {};
  // Parameters, gradients and optimizer state live on the host device; a unit's parameters come to
  // the compute device when they are gathered, and its gradients go back when they are reduced.
  bool cpu_offload = false;
  // Where parameters are used. Absent: where they are, and for those on the meta device the current
  // device.
  std::optional<Device> compute_device = std::nullopt;
  // Compare the ranks' parameters, buffers and options and give all of them rank 0's values.
  // Without it, the ranks must have been made with the same values.
  bool sync_module_states = true;
  // Names, as the module gives them, of parameters that are not sharded and not reduced; a module's
  // path names all below it.
  std::vector<std::string> ignored = {};
  // Divides the sum over ranks; absent: the number of ranks. With float16 the division is split in
  // two, before and after the sum, so that neither end leaves the range.
  std::optional<double> gradient_divide_factor = std::nullopt;
  // How gradients become averages; null: in reduce_dtype, divided as above. Not with
  // gradient_divide_factor, which the hook has to heed by itself. Not called where there is one
  // rank.
  std::shared_ptr<ShardedCommunicationHook> communication_hook = nullptr;
  // Steps a unit's parameters when its gradients are reduced, while backward still runs, and drops
  // them: no clipping, no GradScaler, no Step(). Must outlive this object.
  optim::Optimizer* optimizer_in_backward = nullptr;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_OPTIONS_H_
