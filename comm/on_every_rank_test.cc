// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/on_every_rank.h"

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"

namespace lockstep::comm {
namespace {

void RunRanks(int ranks, const std::function<void(Communicator&)>& body) {
  SpawnThreads(ranks, [&](RankContext& context) {
    ProcessGroupOptions options = context.group_options();
    options.timeout = absl::Seconds(30);
    body(*InitProcessGroup(options));
  }).ThrowIfFailed();
}

TEST(OnEveryRankTest, EveryRankHasWhatEachReturned) {
  for (const int ranks : {1, 2, 3}) {
    RunRanks(ranks, [&](Communicator& world) {
      const std::vector<std::string> all = OnEveryRank(world, "Count", [&] {
        return world.rank() == 1 ? std::string() : absl::StrCat(world.rank());
      });
      ASSERT_EQ(all.size(), static_cast<size_t>(ranks));
      EXPECT_EQ(all[0], "0");
      for (size_t rank = 1; rank < all.size(); ++rank) EXPECT_EQ(all[rank], rank == 1 ? "" : "2");
    });
  }
}

TEST(OnEveryRankTest, AFailureOfOneIsOneOfAll) {
  RunRanks(3, [](Communicator& world) {
    Error error = ErrorOf([&] {
      AllOrNone(world, "Save", [&] {
        if (world.rank() > 0) throw NotFoundError(absl::StrCat("file ", world.rank()));
      });
    });
    EXPECT_EQ(error.code(),
              world.rank() > 0 ? absl::StatusCode::kNotFound : absl::StatusCode::kAborted);
    EXPECT_EQ(error.message(), world.rank() > 0 ? absl::StrCat("file ", world.rank())
                                                : "Save: rank 1 failed: file 1");
    // What is no Error, too.
    error = ErrorOf([&] {
      AllOrNone(world, "Save", [&] {
        if (world.rank() == 2) throw std::runtime_error("odd");
      });
    });
    EXPECT_EQ(error.code(),
              world.rank() == 2 ? absl::StatusCode::kInternal : absl::StatusCode::kAborted);
    // And the group goes on.
    EXPECT_EQ(OnEveryRank(world, "Save", [] { return std::string("x"); })[2], "x");
  });
}

}  // namespace
}  // namespace lockstep::comm
