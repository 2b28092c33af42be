// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/stage_shards.h"

#include <utility>

#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/state/tensor_description.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::examples {

pipeline::Stage StageShards::Add(int stage, std::unique_ptr<pipeline::ShardedStage> sharded) {
  pipeline::ShardedStage& added = *(stages_[stage] = std::move(sharded));
  // A tied parameter has several names.
  for (const auto& [name, tensor] : added.fsdp().module()->StateTensors()) {
    for (const auto& piece : added.fsdp().Pieces()) {
      if (piece.tensor.IsSame(tensor)) shards_[name] = {&added.fsdp(), piece};
    }
  }
  return added.stage();
}

const StageShards::Shard* StageShards::Find(const std::string& parameter) const {
  const auto found = shards_.find(parameter);
  return found == shards_.end() ? nullptr : &found->second;
}

Tensor StageShards::Read(const std::string& parameter, const state::TensorSource& source,
                         const std::string& name) const {
  const Shard* const shard = Find(parameter);
  if (shard != nullptr) {
    return source.LoadRange(name, shard->piece.begin, shard->piece.end);
  }
  const Shape& shape = state::FindTensor(source, name)->shape;
  return Reshape(source.LoadRange(name, 0, NumElements(shape)), shape);
}

NamedTensors StageShards::Gather(const NamedTensors& own) {
  if (empty()) return own;
  NamedTensors whole;
  for (const auto& [name, tensor] : own) {
    const Shard* shard = Find(name);
    if (shard == nullptr) shard = Find(optim::SplitStateName(name).parameter);
    const Tensor all =
        shard == nullptr ? tensor : shard->fsdp->GatherPiece(shard->piece.name, tensor);
    if (all.defined()) whole.Insert(name, all);
  }
  auto& first = *stages_.begin()->second;
  return first.fsdp().groups().world->rank() == 0 ? whole : NamedTensors();
}

}  // namespace lockstep::examples
