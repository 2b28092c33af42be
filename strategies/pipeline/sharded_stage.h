// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// ShardedStage: FullyShardedDataParallel around a stage. The ranks that compute the stage for
// different rows share its parameters, gradients and optimizer state.
//
//   const comm::DeviceMesh mesh(world, {{"shard", 2}, {"pipeline", 3}});
//   const int s = mesh.Coordinate("pipeline");
//   ShardedStage sharded(std::move(stage), mesh.Group("shard"),
//                        {.sharding = {.wrap_policy = WrapByType<models::Gpt2Block>()}});
//   Pipeline pipeline({{s, sharded.stage()}}, mesh.Group("pipeline"),
//                     {.schedule = OneForwardOneBackward(3, 8),
//                      .loss = loss,
//                      .no_sync = [&](int) { return sharded.NoSync(); },
//                      .shard_group = mesh.Group("shard")});
//   optim::AdamW optimizer(pipeline.module().NamedParameters());
//   ...
//   NamedTensors whole = sharded.fsdp().FullStateDict();    // under the unsplit model's names
//
// Gradients are reduced once a step, in the stage's last backward. Not with schedules that split
// backwards (ZB-H1): a unit's parameters are gone when W runs, which Step() refuses.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_SHARDED_STAGE_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_SHARDED_STAGE_H_

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/options.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/stage_tree.h"

namespace lockstep::pipeline {

struct ShardedStageOptions {
  strategies::FullyShardedDataParallelOptions sharding = {};
  // Parameters of this stage that have copies in others (PipelineOptions::tied). The module of each
  // becomes a unit of its own, beside those of the wrap policy: a rank has the same elements of all
  // copies then, and their gradients can be added.
  std::vector<std::string> tied = {};
};

// Lives as long as the pipeline runs, and as its parameters are used: fsdp().Unwrap() puts whole
// ones back before it goes.
class ShardedStage {
 public:
  // Every rank of `group` calls it with the same stage, on its own device. Parameters may be on
  // meta (nn::DeferredInitScope). Throws as FullyShardedDataParallel, and InvalidArgument for a
  // tied name that is no parameter here, or whose module has others.
  ShardedStage(Stage stage, std::shared_ptr<comm::Communicator> group,
               const ShardedStageOptions& options = {});
  // Over the dimensions "replicate" and "shard" for the hybrid strategies; PipelineOptions::
  // shard_group is the latter's.
  ShardedStage(Stage stage, const comm::DeviceMesh& mesh, const ShardedStageOptions& options);

  // For the pipeline. Refers to this object.
  Stage stage();
  // PipelineOptions::no_sync.
  std::shared_ptr<void> NoSync();

  // Its names are those of the unsplit model.
  strategies::FullyShardedDataParallel& fsdp() { return *fsdp_; }

 private:
  strategies::FullyShardedDataParallelOptions Sharding(const ShardedStageOptions& options) const;

  Stage whole_;
  std::shared_ptr<StageTree> tree_;
  std::unique_ptr<strategies::FullyShardedDataParallel> fsdp_;
};

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_SHARDED_STAGE_H_
