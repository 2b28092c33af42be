// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/sharded_files.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies {
namespace {

using testing_util::FullParameters;
using testing_util::LossOf;
using testing_util::MakeMlp;
using testing_util::OnRanks;

FullyShardedDataParallelOptions ByLinear(bool offload = false) {
  FullyShardedDataParallelOptions options;
  options.wrap_policy = WrapByType<nn::Linear>();
  options.cpu_offload = offload;
  return options;
}

TEST(SaveFullStateTest, IsTheFileOfAnUnshardedModelAndLoadsOnAnyNumberOfRanks) {
  const std::string path = NewFolder() + "/model.safetensors";
  std::vector<double> saved;
  OnRanks(3, [&](int rank, std::shared_ptr<comm::Communicator> world) {
    auto model = MakeMlp(rank);
    FullyShardedDataParallel fsdp(model, world, ByLinear());
    SaveFullState(fsdp, path);
    const std::vector<double> values = FullParameters(fsdp, *model);
    if (rank == 0) saved = values;
  });
  auto whole = MakeMlp(9);
  const auto file = state::SafetensorsFile::Open(path);
  NamedTensors state;
  for (const auto& [name, tensor] : whole->NamedParameters()) state.Insert(name, file.Load(name));
  whole->LoadStateDict(state);
  std::vector<double> values;
  for (const Tensor& parameter : whole->Parameters()) {
    for (const double value : parameter.ToVector<double>()) values.push_back(value);
  }
  EXPECT_EQ(values, saved);
  for (const int ranks : {1, 2, 4}) {
    for (const bool offload : {false, true}) {
      OnRanks(ranks, [&](int rank, std::shared_ptr<comm::Communicator> world) {
        auto model = MakeMlp(5 + rank);
        FullyShardedDataParallel fsdp(model, world, ByLinear(offload));
        EXPECT_NE(FullParameters(fsdp, *model), saved);
        LoadFullState(fsdp, path);
        EXPECT_EQ(FullParameters(fsdp, *model), saved) << ranks << " ranks";
      });
    }
  }
}

// Under both of its names; a file that has one of them is enough.
TEST(SaveFullStateTest, SharedParametersHaveAllTheirNames) {
  const std::string path = NewFolder() + "/gpt.safetensors";
  const models::Gpt2Config config = {
      .layers = 1, .heads = 2, .width = 16, .block = 8, .vocabulary = 31};
  OnRanks(2, [&](int rank, std::shared_ptr<comm::Communicator> world) {
    ManualSeed(3, rank);
    auto model = std::make_shared<models::Gpt2>(config);
    FullyShardedDataParallel fsdp(model, world, {.wrap_policy = WrapByType<models::Gpt2Block>()});
    const std::vector<double> before = FullParameters(fsdp, *model);
    SaveFullState(fsdp, path);
    const auto file = state::SafetensorsFile::Open(path);
    EXPECT_EQ(file.Load("lm_head.weight").ToVector<float>(),
              file.Load("transformer.wte.weight").ToVector<float>());
    ManualSeed(77, rank);
    auto other = std::make_shared<models::Gpt2>(config);
    FullyShardedDataParallel again(other, world);
    LoadFullState(again, path);
    EXPECT_EQ(FullParameters(again, *other), before);
  });
}

TEST(SaveFullStateTest, EveryRankThrowsWhereOneFails) {
  const std::string folder = NewFolder();
  OnRanks(2, [&](int rank, std::shared_ptr<comm::Communicator> world) {
    auto model = MakeMlp(rank);
    FullyShardedDataParallel fsdp(model, world, ByLinear());
    const std::vector<double> before = FullParameters(fsdp, *model);
    ExpectError(rank == 0 ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kAborted,
                rank == 0 ? "nowhere" : "rank 0 failed",
                [&] { SaveFullState(fsdp, folder + "/nowhere/model.safetensors"); });
    ExpectError(absl::StatusCode::kNotFound, "missing.safetensors",
                [&] { LoadFullState(fsdp, folder + "/missing.safetensors"); });
    const std::string path = folder + "/foreign.safetensors";
    if (rank == 0) {
      state::WriteSafetensors(path, {{"layers.0.weight", Zeros({2, 2})}, {"stranger", Zeros({1})}});
    }
    world->Barrier().Wait();
    ExpectError(absl::StatusCode::kInvalidArgument, "stranger is not in the module",
                [&] { LoadFullState(fsdp, path); });
    EXPECT_EQ(FullParameters(fsdp, *model), before) << "nothing has changed";
  });
}

// Losses of steps [first, last), and a state after each.
std::vector<double> Steps(FullyShardedDataParallel& fsdp, optim::Optimizer& optimizer,
                          models::Mlp& model, const std::string& root, int64_t first,
                          int64_t last) {
  comm::Communicator& world = *fsdp.groups().world;
  std::vector<double> losses;
  for (int64_t step = first; step < last; ++step) {
    optimizer.ZeroGrad();
    const Tensor loss = LossOf(model, world.rank(), world.size(), step);
    autograd::Backward(loss);
    optimizer.Step();
    losses.push_back(loss.Item<double>());
    SaveShardedTraining(fsdp, optimizer, root, step + 1, {{"step", int64_t{step}}}, {.keep = 2});
  }
  return losses;
}

TEST(ShardedTrainingTest, GoesOnBitForBit) {
  for (const int ranks : {1, 3, 4}) {
    const std::string root = NewFolder();
    const std::string other = NewFolder();
    OnRanks(ranks, [&](int rank, std::shared_ptr<comm::Communicator> world) {
      auto model = MakeMlp(rank);
      FullyShardedDataParallel fsdp(model, world, ByLinear());
      optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
      Steps(fsdp, optimizer, *model, root, 0, 3);
      std::vector<double> wanted = Steps(fsdp, optimizer, *model, other, 3, 5);

      auto second = MakeMlp(40 + rank);
      FullyShardedDataParallel again(second, world, ByLinear());
      optim::AdamW moments(second->NamedParameters(), {.lr = 0.01});
      const ShardedTraining back = LoadLatestShardedTraining(again, moments, root);
      EXPECT_EQ(back.step, 3);
      EXPECT_EQ(std::get<int64_t>(back.values.at("step")), 2);
      EXPECT_EQ(back.values.size(), 1u);
      const std::string third = root + "/third";
      world->Barrier().Wait();
      EXPECT_EQ(Steps(again, moments, *second, third, 3, 5), wanted) << ranks << " ranks";
      EXPECT_EQ(FullParameters(again, *second), FullParameters(fsdp, *model));
    });
  }
}

TEST(ShardedTrainingTest, RefusesOtherUnitsAndOtherNumbersOfRanks) {
  const std::string root = NewFolder();
  OnRanks(2, [&](int rank, std::shared_ptr<comm::Communicator> world) {
    auto model = MakeMlp(rank);
    FullyShardedDataParallel fsdp(model, world, ByLinear());
    optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
    Steps(fsdp, optimizer, *model, root, 0, 1);
    auto other = MakeMlp(rank);
    FullyShardedDataParallel one_unit(other, world);
    optim::AdamW moments(other->NamedParameters(), {.lr = 0.01});
    ExpectError(absl::StatusCode::kInvalidArgument, "wrap the model in the units",
                [&] { LoadLatestShardedTraining(one_unit, moments, root); });
  });
  OnRanks(3, [&](int rank, std::shared_ptr<comm::Communicator> world) {
    auto model = MakeMlp(rank);
    FullyShardedDataParallel fsdp(model, world, ByLinear());
    optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
    ExpectError(absl::StatusCode::kInvalidArgument, "2 ranks",
                [&] { LoadLatestShardedTraining(fsdp, optimizer, root); });
  });
}

}  // namespace
}  // namespace lockstep::strategies
