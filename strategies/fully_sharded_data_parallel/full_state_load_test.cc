// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Models that come from elsewhere, into any number of ranks, and whole states that are written
// while they are gathered: values, errors, bytes.
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/huggingface.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/state/group_state.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/state/safetensors_source.h"
#include "lockstep/state/tensor_source.h"
#include "lockstep/state/training_state.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharded_files.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

using testing_util::FullParameters;
using testing_util::OnRanks;
using testing_util::ValuesOf;
using Options = FullyShardedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

models::Gpt2Config Tiny() {
  return {.layers = 2, .heads = 2, .width = 10, .block = 5, .vocabulary = 11};
}

std::shared_ptr<models::Gpt2> MakeGpt2(uint64_t seed, const models::Gpt2Config& config = Tiny()) {
  ManualSeed(seed);
  return std::make_shared<models::Gpt2>(config);
}

Options ByBlock(Options options = {}) {
  options.wrap_policy = WrapByType<models::Gpt2Block>();
  return options;
}

// A file as transformers writes it.
std::string WriteTheirs(const models::Gpt2Config& config = Tiny()) {
  const std::string path = NewFolder() + "/model.safetensors";
  state::WriteSafetensors(
      path, models::Gpt2ToHuggingFace(MakeGpt2(21, config)->StateDict(), {.prefix = false}));
  return path;
}

std::shared_ptr<models::Gpt2HuggingFaceSource> Theirs(const std::string& path) {
  return std::make_shared<models::Gpt2HuggingFaceSource>(
      std::make_shared<state::SafetensorsSource>(path));
}

Tensor LossOfRank(models::Gpt2& model, int rank, int ranks, int64_t step) {
  std::vector<int64_t> ids, targets;
  const int64_t rows = 6 / ranks;
  for (int64_t row = rank * rows; row < (rank + 1) * rows; ++row) {
    for (int64_t i = 0; i < 5; ++i) {
      ids.push_back((3 * row + 5 * i + step) % 11);
      targets.push_back((7 * row + 2 * i + 4 * step) % 11);
    }
  }
  return model.Loss(FromVector<int64_t>(ids, {rows, 5}), FromVector<int64_t>(targets, {rows, 5}));
}

void Steps(models::Gpt2& model, optim::Optimizer& optimizer, int rank, int ranks) {
  for (int64_t step = 0; step < 3; ++step) {
    optimizer.ZeroGrad();
    autograd::Backward(LossOfRank(model, rank, ranks, step));
    optimizer.Step();
  }
}

std::vector<Options> Strategies() {
  return {ByBlock(), ByBlock({.sharding_strategy = ShardingStrategy::kShardGradOp}),
          ByBlock({.sharding_strategy = ShardingStrategy::kNoShard}),
          ByBlock({.cpu_offload = true}), Options()};
}

// ---- From elsewhere ----

TEST(LoadFullStateTest, ValuesOfTheWholeLoaderAndStepsOfDdp) {
  const std::string path = WriteTheirs();
  const NamedTensors whole =
      models::Gpt2FromHuggingFace(state::SafetensorsFile::Open(path).LoadAll());
  auto plain = MakeGpt2(5);
  plain->LoadStateDict(whole);
  const std::vector<double> wanted = testing_util::AllParameters(*plain);
  for (const int ranks : {1, 2, 3}) {
    const std::vector<double> trained = ValuesOf(ranks, [&](int rank, Group world) {
      auto model = MakeGpt2(5 + rank);
      DistributedDataParallel ddp(model, world);
      model->LoadStateDict(whole);
      optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
      Steps(*model, optimizer, rank, ranks);
      return testing_util::AllParameters(*model);
    });
    EXPECT_NE(trained, wanted);
    for (const Options& options : Strategies()) {
      for (const bool deferred : {false, true}) {
        OnRanks(ranks, [&](int rank, Group world) {
          std::shared_ptr<models::Gpt2> model;
          {
            std::optional<nn::DeferredInitScope> scope;
            if (deferred) scope.emplace();
            model = MakeGpt2(5);
          }
          FullyShardedDataParallel fsdp(model, world, options);
          EXPECT_NE(FullParameters(fsdp, *model), wanted);
          LoadFullState(fsdp, *Theirs(path));
          EXPECT_EQ(FullParameters(fsdp, *model), wanted) << ranks << " ranks";
          optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
          Steps(*model, optimizer, rank, ranks);
          EXPECT_EQ(FullParameters(fsdp, *model), trained) << ranks << " ranks";
        });
      }
    }
  }
}

TEST(LoadFullStateTest, EveryRankNamesWhatDoesNotFit) {
  models::Gpt2Config other = Tiny();
  other.vocabulary = 13;
  const std::string path = WriteTheirs(other);
  const std::string good = WriteTheirs();
  const std::string shorter = WriteTheirs();
  NamedTensors damaged;
  for (const auto& [name, tensor] : state::SafetensorsFile::Open(shorter).LoadAll()) {
    if (name != "h.1.ln_2.bias") damaged.Insert(name, tensor);
  }
  damaged.Insert("score.weight", Zeros({2}));
  damaged.Set("wpe.weight", Zeros({5, 10}, {.dtype = DType::kInt64}));
  state::WriteSafetensors(shorter, damaged);
  // A head of its own, where this model has the embedding.
  const std::string untied = WriteTheirs();
  NamedTensors head = state::SafetensorsFile::Open(untied).LoadAll();
  head.Insert("lm_head.weight", Zeros({11, 10}));
  state::WriteSafetensors(untied, head);
  OnRanks(3, [&](int rank, Group world) {
    auto model = MakeGpt2(5 + rank);
    FullyShardedDataParallel fsdp(model, world, ByBlock());
    const std::vector<double> before = FullParameters(fsdp, *model);
    ExpectError(absl::StatusCode::kInvalidArgument,
                "transformer.wte.weight is float32[13, 10] and not of shape [11, 10]",
                [&] { LoadFullState(fsdp, *Theirs(path)); });
    for (const char* part :
         {"transformer.h.1.ln_2.bias is missing", "transformer.score.weight is not in the module",
          "transformer.wpe.weight is int64, which does not convert"}) {
      ExpectError(absl::StatusCode::kInvalidArgument, part,
                  [&] { LoadFullState(fsdp, *Theirs(shorter)); });
    }
    // Only the ranks that have elements of it can see that.
    try {
      LoadFullState(fsdp, *Theirs(untied));
      ADD_FAILURE() << "loaded";
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("have different values there"), std::string::npos)
          << error.message();
    }
    EXPECT_EQ(FullParameters(fsdp, *model), before) << "nothing has changed";
    // And the group goes on.
    LoadFullState(fsdp, *Theirs(good));
  });
}

// ---- Whole states that no rank has ----

// As one rank alone writes it, whatever the layout; here of a model with a shared parameter.
TEST(GatheredStateTest, FilesAreThoseOfDdp) {
  for (const int ranks : {2, 3}) {
    const std::string root = NewFolder();
    OnRanks(ranks, [&](int rank, Group world) {
      auto model = MakeGpt2(5 + rank);
      DistributedDataParallel ddp(model, world);
      optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
      Steps(*model, optimizer, rank, ranks);
      state::TrainingState state;
      state.step = 3;
      state.model = model->StateDict();
      state.optimizer = optimizer.SaveState().tensors;
      state::SaveTrainingState(root + "/ddp", state, *world);
    });
    const std::string ddp = root + "/ddp/step-00000003";
    for (const Options& options : Strategies()) {
      OnRanks(ranks, [&](int rank, Group world) {
        auto model = MakeGpt2(5 + rank);
        FullyShardedDataParallel fsdp(model, world, options);
        optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
        Steps(*model, optimizer, rank, ranks);
        state::TrainingState state;
        state.step = 3;
        const std::string path = state::SaveTrainingState(
            root + "/fsdp", state, *world, {},
            {FullModelTensors(fsdp), FullOptimizerTensors(fsdp, optimizer)});
        SaveFullState(fsdp, root + "/model.safetensors");
        const auto expect_same = [&](const std::string& a, const std::string& b) {
          EXPECT_FALSE(ReadAll(a).empty());
          EXPECT_TRUE(ReadAll(a) == ReadAll(b)) << a;
        };
        expect_same(path + "/model.safetensors", ddp + "/model.safetensors");
        expect_same(path + "/optimizer.safetensors", ddp + "/optimizer.safetensors");
        expect_same(root + "/model.safetensors", ddp + "/model.safetensors");
        // Its parts are read back, without the whole.
        auto other = MakeGpt2(77);
        FullyShardedDataParallel again(other, world, ByBlock());
        optim::AdamW moments(other->NamedParameters(), {.lr = 0.01});
        LoadFullState(again, path + "/model.safetensors");
        again.LoadFullOptimizerState(moments,
                                     state::SafetensorsSource(path + "/optimizer.safetensors"),
                                     optimizer.SaveState().numbers);
        Steps(*other, moments, rank, ranks);
        Steps(*model, optimizer, rank, ranks);
        EXPECT_EQ(FullParameters(again, *other), FullParameters(fsdp, *model));
      });
    }
  }
}

TEST(GatheredStateTest, ReplicasTakeNoPart) {
  const std::string root = NewFolder();
  OnRanks(4, [&](int rank, Group world) {
    const comm::DeviceMesh mesh(world, {{"replicate", 2}, {"shard", 2}});
    auto model = MakeGpt2(5 + rank);
    FullyShardedDataParallel fsdp(model, mesh,
                                  ByBlock({.sharding_strategy = ShardingStrategy::kHybridShard}));
    SaveFullState(fsdp, root + "/model.safetensors");
    for (const auto& piece : fsdp.Pieces()) {
      EXPECT_EQ(fsdp.GatherPiece(piece.name, piece.tensor).defined(), rank == 0);
    }
    ExpectError(absl::StatusCode::kNotFound, "is no sharded parameter",
                [&] { fsdp.GatherPiece("nothing", Zeros({1})); });
  });
  state::WriteSafetensors(root + "/whole.safetensors", MakeGpt2(5)->StateDict());
  EXPECT_TRUE(ReadAll(root + "/model.safetensors") == ReadAll(root + "/whole.safetensors"));
}

TEST(GatheredStateTest, AllThrowWhereRankZeroCannotWrite) {
  const std::string root = NewFolder();
  std::ofstream(root + "/file") << "no folder";
  OnRanks(2, [&](int rank, Group world) {
    auto model = MakeGpt2(5);
    FullyShardedDataParallel fsdp(model, world, ByBlock());
    state::TrainingState state;
    const state::GatheredState gathered = {FullModelTensors(fsdp), {}};
    ExpectError(rank == 0 ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kAborted,
                "cannot make",
                [&] { state::SaveTrainingState(root + "/file", state, *world, {}, gathered); });
    state.model.Insert("w", Zeros({1}));
    ExpectError(absl::StatusCode::kInvalidArgument, "give one of them",
                [&] { state::SaveTrainingState(root + "/run", state, *world, {}, gathered); });
    state.model = {};
    state::SaveTrainingState(root + "/run", state, *world, {}, gathered);
  });
}

// ---- Bytes ----

constexpr int kRanks = 4;
constexpr int64_t kWidth = 64;
constexpr int64_t kLayers = 6;
constexpr int64_t kUnitBytes = (12 * kWidth * kWidth + 13 * kWidth) * 4;  // of a block

models::Gpt2Config Deep() {
  return {.layers = kLayers, .heads = 2, .width = kWidth, .block = 16, .vocabulary = 64};
}

// The most bytes on this rank's device beyond what there was.
int64_t PeakOf(const std::function<void()>& body) {
  const int64_t before = GetMemoryStats(CurrentDevice()).current_bytes;
  ResetPeakBytes(CurrentDevice());
  body();
  return GetMemoryStats(CurrentDevice()).peak_bytes - before;
}

// Neither way has more than one unit beside the parts: a tenth of the model here.
TEST(GatheredStateTest, LoadingAndSavingCostOneUnit) {
  const std::string theirs = WriteTheirs(Deep());
  const std::string root = NewFolder();
  for (const bool offload : {false, true}) {
    OnRanks(kRanks, [&](int rank, Group world) {
      const DeviceScope device(Cpu(1 + rank));
      std::shared_ptr<models::Gpt2> model;
      {
        const nn::DeferredInitScope scope;
        model = MakeGpt2(5, Deep());
      }
      FullyShardedDataParallel fsdp(model, world, ByBlock({.cpu_offload = offload}));
      EXPECT_LE(PeakOf([&] { LoadFullState(fsdp, *Theirs(theirs)); }), kUnitBytes);
      optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
      for (const Tensor& parameter : model->Parameters()) {
        autograd::SetGrad(parameter, ZerosLike(parameter));
      }
      optimizer.Step();
      const int64_t peak = PeakOf([&] {
        state::TrainingState state;
        state::SaveTrainingState(root, state, *world, {},
                                 {FullModelTensors(fsdp), FullOptimizerTensors(fsdp, optimizer)});
      });
      EXPECT_LE(peak, kUnitBytes);
      EXPECT_GE(peak, rank == 0 ? 4 * kWidth * kWidth * 4 : 0) << "the largest tensor";
      const std::string path = root + "/step-00000000/optimizer.safetensors";
      const state::SafetensorsSource moments(path);
      const int64_t parts = PeakOf(
          [&] { fsdp.LoadFullOptimizerState(optimizer, moments, optimizer.SaveState().numbers); });
      // What is read, and the optimizer's copy of it; a quarter each of two moments.
      EXPECT_LE(parts, 2 * 2 * (kLayers + 1) * kUnitBytes / kRanks);
    });
  }
}

}  // namespace
}  // namespace lockstep::strategies
