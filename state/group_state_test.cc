// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads.
#include "lockstep/state/group_state.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/state/training_state.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void RunRanks(int ranks, const std::function<void(comm::Communicator&)>& body) {
  comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
    comm::ProcessGroupOptions options = context.group_options();
    options.timeout = absl::Seconds(30);
    body(*comm::InitProcessGroup(options));
  }).ThrowIfFailed();
}

// What a rank gives: everything on rank 0, and on all something of their own where asked for.
TrainingState StateOf(int64_t step, int rank, bool own = true) {
  TrainingState state;
  state.step = step;
  if (rank == 0) {
    state.model = {{"w", FromVector<float>({1, 2}, {2})}};
    state.strategy = {{"steps", FromVector<int64_t>({step}, {1})}};
    state.Set("data.batch", step);
  }
  if (own) state.own = {{"error", FromVector<double>({10.0 * step + rank}, {1})}};
  return state;
}

TEST(GroupStateTest, EveryRankGetsBackItsOwn) {
  const std::string root = NewFolder() + "/run";
  RunRanks(3, [&](comm::Communicator& world) {
    for (const int64_t step : {4, 5}) {
      EXPECT_EQ(SaveTrainingState(root, StateOf(step, world.rank()), world, {.keep = 1}),
                root + "/step-0000000" + absl::StrCat(step));
    }
    const TrainingState back = LoadTrainingState(root + "/step-00000005", world.rank());
    EXPECT_EQ(back.ranks, 3);
    EXPECT_EQ(back.own.At("error").Item<double>(), 50 + world.rank());
    EXPECT_EQ(back.model.At("w").Item<float>({1}), 2);
    EXPECT_EQ(back.strategy.At("steps").Item<int64_t>(), 5);
    EXPECT_EQ(back.Integer("data.batch"), 5);
  });
  EXPECT_THAT(ListTrainingStates(root), ElementsAre(root + "/step-00000005"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root), fs::directory_iterator()), 1);
  // Other numbers of ranks: none is there for them.
  EXPECT_TRUE(LoadTrainingState(root + "/step-00000005", 3).own.empty());
  EXPECT_TRUE(LoadTrainingState(root + "/step-00000005").own.empty());
}

// A rank without anything of its own beside others that have some; and where none has.
TEST(GroupStateTest, FilesOfRanksAreThereWhereOneIsNeeded) {
  const std::string root = NewFolder();
  RunRanks(2, [&](comm::Communicator& world) {
    SaveTrainingState(root, StateOf(1, world.rank(), world.rank() == 1), world);
    SaveTrainingState(root, StateOf(2, world.rank(), false), world);
    const TrainingState some = LoadTrainingState(root + "/step-00000001", world.rank());
    EXPECT_EQ(some.ranks, 2);
    EXPECT_EQ(some.own.size(), static_cast<size_t>(world.rank()));
    EXPECT_EQ(LoadTrainingState(root + "/step-00000002", world.rank()).ranks, 0);
  });
  EXPECT_FALSE(fs::exists(root + "/step-00000002/rank-00000.safetensors"));
  // Alone it is the function without a group.
  TrainingState alone = StateOf(3, 0);
  SaveTrainingState(root, alone);
  EXPECT_EQ(LoadTrainingState(root + "/step-00000003", 0).own.At("error").Item<double>(), 30);
}

TEST(GroupStateTest, DamageToOneRanksFileIsFound) {
  const std::string root = NewFolder();
  RunRanks(2, [&](comm::Communicator& world) {
    SaveTrainingState(root, StateOf(1, world.rank()), world);
    SaveTrainingState(root, StateOf(2, world.rank()), world);
  });
  const std::string file = root + "/step-00000002/rank-00001.safetensors";
  fs::copy_file(root + "/step-00000001/rank-00001.safetensors", file,
                fs::copy_options::overwrite_existing);
  const Error error = ErrorOf([&] { LoadTrainingState(root + "/step-00000002", 1); });
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(error.message(), HasSubstr(file));
  EXPECT_EQ(LoadTrainingState(root + "/step-00000002", 0).step, 2) << "that rank's is good";
  const LoadedState latest = LoadLatestTrainingState(root);
  EXPECT_EQ(latest.state.step, 1);
  EXPECT_THAT(latest.skipped, ElementsAre(HasSubstr(file)));
  fs::remove(file);
  EXPECT_THAT(MessageOf([&] { LoadTrainingState(root + "/step-00000002"); }),
              HasSubstr("is missing"));
}

TEST(GroupStateTest, AFailureOfOneRankIsOneOfAllAndLeavesNothing) {
  const std::string root = NewFolder();
  std::ofstream(root + "/file") << "no folder";
  RunRanks(2, [&](comm::Communicator& world) {
    const int rank = world.rank();
    // Rank 0 cannot begin.
    Error error = ErrorOf([&] { SaveTrainingState(root + "/file", StateOf(1, rank), world); });
    EXPECT_EQ(error.code(),
              rank == 0 ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kAborted);
    EXPECT_THAT(error.message(), HasSubstr("cannot make"));
    // Rank 1 has what cannot be written.
    TrainingState state = StateOf(1, rank);
    if (rank == 1) state.own = {{"__metadata__", FromVector<double>({1}, {1})}};
    error = ErrorOf([&] { SaveTrainingState(root + "/run", state, world); });
    EXPECT_EQ(error.code(),
              rank == 1 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kAborted);
    EXPECT_THAT(error.message(), HasSubstr(rank == 0 ? "rank 1 failed: " : "__metadata__"));
    // And the group goes on.
    SaveTrainingState(root + "/good", StateOf(1, rank), world);
  });
  EXPECT_TRUE(fs::is_empty(root + "/run"));
  EXPECT_EQ(LoadLatestTrainingState(root + "/good").state.ranks, 2);
}

}  // namespace
}  // namespace lockstep::state
