// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of state.md.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/state/group_state.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/state/safetensors_reader.h"
#include "lockstep/state/safetensors_source.h"
#include "lockstep/state/safetensors_writer.h"
#include "lockstep/state/sharded_state.h"
#include "lockstep/state/tensor_source.h"
#include "lockstep/state/training_state.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/strategy_state.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

TEST(StateExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/state.md", "docs/state_example_test.cc");
}

TEST(StateExample, Weights) {
  const std::string folder = NewFolder();
  models::Mlp model({.sizes = {2, 3, 1}});
  state::WriteSafetensors(folder + "/model.safetensors", model.StateDict(), {{"format", "pt"}});

  state::SafetensorsFile file = state::SafetensorsFile::Open(folder + "/model.safetensors");
  model.LoadStateDict(file.LoadAll());
  EXPECT_EQ(file.entries().size(), 4u);
}

TEST(StateExample, OneTensorAtATime) {
  const std::string folder = NewFolder();
  state::SafetensorsWriter writer(
      folder + "/large.safetensors",
      {{"embedding", DType::kFloat32, {4, 3}}, {"bias", DType::kFloat32, {3}}});
  writer.AppendElements("embedding", Zeros({6}));  // its first half, in row-major order
  writer.AppendElements("embedding", Ones({6}));
  writer.Append("bias", Ones({3}));
  writer.Finish();

  const state::SafetensorsReader reader(folder + "/large.safetensors");
  Tensor part = reader.LoadRange("embedding", 5, 7);  // two elements, and no more is read
  EXPECT_EQ(part.ToVector<float>(), (std::vector<float>{0, 1}));

  const state::SafetensorsSource source(folder + "/large.safetensors");
  Tensor rows = source.LoadRange("embedding", 3, 9);
  NamedTensors everything = state::LoadAll(source);
  EXPECT_EQ(rows.ToVector<float>(), (std::vector<float>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(everything.At("bias").shape(), (Shape{3}));
}

void SaveAndLoadShards(const std::string& root, std::shared_ptr<comm::Communicator> world) {
  const int rank = world->rank();
  auto agree = [&](bool good) {
    Tensor all = FromVector<int64_t>({good ? 1 : 0}, {1});
    world->AllReduce(all, {.op = comm::ReduceOp::kMin}).Wait();
    return all.Item<int64_t>() == 1;
  };
  state::ShardingRank me{.rank = rank, .world_size = 2, .agree = agree};
  std::vector<state::Shard> shards = {
      {"wte.weight", {4, 3}, 6 * rank, 6 * rank + 6, Full({6}, 1.0 + rank)}};
  state::SaveShardedState(root, 500, shards, {{"data.batch", int64_t{500}}}, me);

  state::LoadedShardedState latest = state::LoadLatestShardedState(root, me);
  Tensor mine = latest.state.shards[0].tensor;
  EXPECT_EQ(mine.Item<float>({5}), 1.0f + static_cast<float>(rank));
}

TEST(StateExample, Sharded) {
  const std::string root = NewFolder() + "/sharded";
  comm::SpawnThreads(2, [&](comm::RankContext& context) {
    SaveAndLoadShards(root, comm::InitProcessGroup(context.group_options()));
  }).ThrowIfFailed();
  EXPECT_EQ(state::ReadShardedManifest(root + "/step-00000500").world_size(), 2);
}

TEST(StateExample, Training) {
  const std::string root = NewFolder() + "/run";
  models::Mlp model({.sizes = {2, 3, 1}});
  optim::AdamW optimizer(model.NamedParameters());

  state::TrainingState state;
  state.step = 500;
  state.model = model.StateDict();
  state.optimizer = optimizer.SaveState().tensors;
  state.Set("data.batch", int64_t{500});
  state::SaveRandomState(ThreadGenerators(), state);
  state::SaveTrainingState(root, state, {.keep = 3});

  state::LoadedState latest = state::LoadLatestTrainingState(root);
  model.LoadStateDict(latest.state.model);
  ThreadGenerators() = state::LoadRandomState(latest.state, /*data_parallel_rank=*/0);
  EXPECT_EQ(latest.state.Integer("data.batch"), 500);
}

TEST(StateExample, Ranks) {
  const std::string root = NewFolder() + "/ranks";
  comm::SpawnThreads(2, [&](comm::RankContext& context) {
    const std::shared_ptr<comm::Communicator> world =
        comm::InitProcessGroup(context.group_options());
    auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {2, 3, 1}});
    strategies::DistributedDataParallel ddp(model, world, {.staleness = 1});
    autograd::Backward(Sum((*model)(Full({1, 2}, 1.0 + world->rank()))));
    state::TrainingState state;
    state.step = 1;

    strategies::StrategyState kept = ddp.SaveState();
    state.strategy.InsertAll(kept.shared, "ddp.");
    state.own.InsertAll(kept.own, "ddp.");
    state::SaveTrainingState(root, state, *world, {.keep = 3});
    EXPECT_EQ(kept.shared.size(), 5u) << "an average of each parameter, and whether all have one";

    const std::string path = root + "/step-00000001";
    state::TrainingState back = state::LoadTrainingState(path, world->rank());
    ddp.LoadState(strategies::StrategyState{back.strategy, back.own}.Part("ddp."));
  }).ThrowIfFailed();
}

}  // namespace
}  // namespace lockstep
