// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/wait_board.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/store.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::comm {
namespace {

// A wait that began `ago` before now.
WaitBoard::Wait Wait(int64_t number, absl::Duration ago, std::vector<int> missing,
                     absl::Duration timeout = absl::Minutes(10)) {
  WaitBoard::Wait wait;
  wait.signature.op = CollectiveId::kAllReduce;
  wait.signature.dtype = DType::kFloat32;
  wait.signature.count = 5;
  wait.number = number;
  wait.since_ns = MonotonicNanoseconds() - absl::ToInt64Nanoseconds(ago);
  wait.timeout = timeout;
  wait.missing = std::move(missing);
  return wait;
}

class WaitBoardTest : public testing::Test {
 protected:
  WaitBoard::Options Options(const std::string& group, int rank,
                             std::vector<int> world_ranks = {0, 1, 2}) {
    return {.store = store_,
            .group = group,
            .rank = rank,
            .world_ranks = std::move(world_ranks),
            .slow_warning = absl::Seconds(10),
            .on_slow = [this](const std::string& text) { warnings_.push_back(text); },
            .blocked = blocked_};
  }

  std::shared_ptr<Store> store_ = std::make_shared<LocalStore>();
  std::shared_ptr<std::atomic<int>> blocked_ = std::make_shared<std::atomic<int>>(1);
  std::vector<std::string> warnings_;
};

TEST_F(WaitBoardTest, IsDueAtFourFifthsOfTheThreshold) {
  const WaitBoard board(Options("a", 0));
  const auto due = [&](absl::Duration ago, absl::Duration timeout) {
    return board.IsDue(MonotonicNanoseconds() - absl::ToInt64Nanoseconds(ago), timeout);
  };
  EXPECT_FALSE(due(absl::Seconds(7), absl::Minutes(10)));
  EXPECT_TRUE(due(absl::Seconds(8.1), absl::Minutes(10)));
  EXPECT_FALSE(due(absl::Seconds(0.3), absl::Seconds(1)));
  EXPECT_TRUE(due(absl::Seconds(0.41), absl::Seconds(1)));
  EXPECT_FALSE(due(absl::Seconds(7), absl::InfiniteDuration()));
}

TEST_F(WaitBoardTest, FindsTheCircle) {
  WaitBoard of_0(Options("a", 0));
  WaitBoard of_1(Options("b", 1));
  of_0.Tell({Wait(5, absl::Seconds(9), {1})});
  of_1.Tell({Wait(3, absl::Seconds(9), {0})});
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
  of_1.Tell({Wait(3, absl::Seconds(11), {0})});
  of_1.Tell({Wait(3, absl::Seconds(12), {0})});  // once a call
  ASSERT_EQ(warnings_.size(), 1u);
  const std::string circle =
      "rank 1 waits in group \"b\" for collective 3 (AllReduce(float32 x 5)), which rank 0 has not "
      "issued: rank 0 waits in group \"a\" for collective 5 (AllReduce(float32 x 5)), which rank 1 "
      "has not issued: the ranks enter groups \"a\" and \"b\" in different order";
  EXPECT_EQ(warnings_[0], "group \"b\": slow: for 11s, " + circle);
  EXPECT_EQ(of_1.Diagnose(Wait(3, absl::Seconds(20), {0})), ": " + circle);
}

TEST_F(WaitBoardTest, NamesASlowRank) {
  WaitBoard board(Options("a", 0));
  board.Tell({Wait(5, absl::Seconds(10.25), {1, 2})});
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0],
            "group \"a\": slow: for 10.2s, rank 0 waits in group \"a\" for collective 5 "
            "(AllReduce(float32 x 5)), which ranks 1, 2 have not issued: rank 1 is not known to "
            "wait for anyone (it is busy, stopped, or took another path)");
  EXPECT_EQ(board.Diagnose(Wait(5, absl::Seconds(20), {1, 2})), "");
}

TEST_F(WaitBoardTest, EndsWithTheWait) {
  WaitBoard of_0(Options("a", 0));
  of_0.Tell({Wait(5, absl::Seconds(9), {1})});
  WaitBoard of_1(Options("b", 1));
  const WaitBoard::Wait wait = Wait(3, absl::Seconds(9), {0});
  EXPECT_NE(of_1.Diagnose(wait), "");
  of_0.Clear(/*failed=*/false);
  EXPECT_EQ(of_1.Diagnose(wait), "");
  of_0.Tell({Wait(6, absl::Seconds(9), {1})});
  EXPECT_TRUE(absl::StrContains(of_1.Diagnose(wait), "collective 6"));
}

TEST_F(WaitBoardTest, OutlivesAFailureButNotTheCommunicator) {
  auto of_0 = std::make_unique<WaitBoard>(Options("a", 0));
  of_0->Tell({Wait(5, absl::Seconds(9), {1})});
  of_0->Clear(/*failed=*/true);
  WaitBoard of_1(Options("b", 1));
  const WaitBoard::Wait wait = Wait(3, absl::Seconds(9), {0});
  EXPECT_TRUE(absl::StrContains(of_1.Diagnose(wait), "different order"));
  of_0.reset();
  EXPECT_EQ(of_1.Diagnose(wait), "");
}

// Without a blocked thread, a call that is missing elsewhere is not missing because of this wait.
TEST_F(WaitBoardTest, OnlyBlockedRanksAreFollowed) {
  *blocked_ = 0;
  WaitBoard of_0(Options("a", 0));
  of_0.Tell({Wait(5, absl::Seconds(9), {1})});
  WaitBoard of_1(Options("b", 1));
  const WaitBoard::Wait wait = Wait(3, absl::Seconds(9), {0});
  EXPECT_EQ(of_1.Diagnose(wait), "");
  *blocked_ = 2;
  of_0.Tell({Wait(5, absl::Seconds(9), {1})});  // the change is published
  EXPECT_NE(of_1.Diagnose(wait), "");
}

TEST_F(WaitBoardTest, GroupsOfSomeRanksUseTheJobsNumbers) {
  WaitBoard of_4(Options("left", 0, {4, 7}));
  of_4.Tell({Wait(0, absl::Seconds(9), {1})});
  WaitBoard of_7(Options("right", 1, {4, 7}));
  const std::string text = of_7.Diagnose(Wait(2, absl::Seconds(9), {0}));
  EXPECT_TRUE(absl::StartsWith(text, ": by rank of the job, rank 7 waits in group \"right\" for "))
      << text;
  EXPECT_TRUE(absl::StrContains(text, "which rank 4 has not issued: rank 4 waits")) << text;
}

TEST_F(WaitBoardTest, SeveralWaitsOfOneRank) {
  WaitBoard of_0(Options("a", 0));
  WaitBoard::Wait receive = Wait(1, absl::Seconds(9), {2});
  receive.signature.op = CollectiveId::kRecv;
  receive.signature.peer = 2;
  of_0.Tell({receive, Wait(5, absl::Seconds(9), {1}), Wait(6, absl::Seconds(1), {2})});
  WaitBoard also_of_0(Options("c", 0));
  also_of_0.Tell({Wait(8, absl::Seconds(9), {2})});
  WaitBoard of_1(Options("b", 1));
  const std::string text = of_1.Diagnose(Wait(3, absl::Seconds(9), {0}));
  EXPECT_TRUE(absl::StrContains(text, "collective 5")) << text;
  EXPECT_TRUE(absl::StrContains(text, "\"a\" and \"b\"")) << text;
}

// What others have written under these keys, or a store that is gone, changes no error.
TEST_F(WaitBoardTest, TheStoreIsNotTrusted) {
  for (const char* value : {"", "{", "[]", "{\"blocked\": 1}", "{\"blocked\": true, \"waits\": 3}",
                            "{\"blocked\": true, \"waits\": [{\"group\": 1}]}"}) {
    store_->Set("waits/0/slots", "1", Deadline());
    store_->Set("waits/0/1", value, Deadline());
    WaitBoard board(Options("b", 1));
    EXPECT_EQ(board.Diagnose(Wait(3, absl::Seconds(9), {0})), "") << value;
  }
  store_->Set("waits/0/slots", "many", Deadline());
  EXPECT_EQ(WaitBoard(Options("b", 1)).Diagnose(Wait(3, absl::Seconds(9), {0})), "");
  StoreServer server({.port = 0, .token = "t"});
  WaitBoard::Options options = Options("b", 1);
  auto stopped = std::make_unique<StoreServer>(StoreServerOptions{.port = 0});
  options.store = std::make_shared<StoreClient>(StoreClientOptions{.port = stopped->port()});
  stopped.reset();
  WaitBoard board(options);
  board.Tell({Wait(3, absl::Seconds(9), {0})});
  EXPECT_EQ(board.Diagnose(Wait(3, absl::Seconds(9), {0})), "");
}

}  // namespace
}  // namespace lockstep::comm
