// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// StageShards: the sharded stages of a rank, by the names of their parameters. What a rank has of a
// whole tensor, and the whole of what the ranks have. Without stages, everything is whole.
#ifndef LOCKSTEP_EXAMPLES_STAGE_SHARDS_H_
#define LOCKSTEP_EXAMPLES_STAGE_SHARDS_H_

#include <map>
#include <memory>
#include <string>

#include "lockstep/state/tensor_source.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/pipeline/sharded_stage.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::examples {

class StageShards {
 public:
  // The stage of that number, as it is for the pipeline. Stages are added once, before the rest.
  pipeline::Stage Add(int stage, std::unique_ptr<pipeline::ShardedStage> sharded);
  bool empty() const { return stages_.empty(); }
  // PipelineOptions::no_sync.
  std::shared_ptr<void> NoSync(int stage) { return stages_.at(stage)->NoSync(); }

  // This rank's elements of `name` in `source`, the value or an optimizer's moment of `parameter`;
  // reads no more than that. Shaped as this rank's parameter.
  Tensor Read(const std::string& parameter, const state::TensorSource& source,
              const std::string& name) const;

  // `own`, with sharded parameters and "<parameter>.<kind>" whole. On the first rank of those that
  // share a stage; empty on the others. All of them call it with the same names.
  NamedTensors Gather(const NamedTensors& own);

 private:
  struct Shard {
    strategies::FullyShardedDataParallel* fsdp = nullptr;
    strategies::FullyShardedDataParallel::Piece piece;
  };
  const Shard* Find(const std::string& parameter) const;

  std::map<int, std::unique_ptr<pipeline::ShardedStage>> stages_;
  std::map<std::string, Shard> shards_;
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_STAGE_SHARDS_H_
