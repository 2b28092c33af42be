// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Ranks that wait for each other in a circle over several groups, or for a slow one: a warning that
// says who waits for whom, and at the deadline an error that says the same.

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {
namespace {

// For what another rank is to say: one that has failed does not.
Deadline Patience() { return Deadline::After(absl::Seconds(60)); }

// What a rank was warned of.
class Warnings {
 public:
  std::function<void(const std::string&)> Collector() {
    return [this](const std::string& text) {
      std::lock_guard<std::mutex> lock(mutex_);
      texts_.push_back(text);
    };
  }
  std::string All() {
    std::lock_guard<std::mutex> lock(mutex_);
    return absl::StrJoin(texts_, "\n");
  }
  size_t size() {
    std::lock_guard<std::mutex> lock(mutex_);
    return texts_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

ProcessGroupOptions Options(const RankContext& context, const std::string& name,
                            absl::Duration timeout, Warnings* warnings,
                            absl::Duration slow_warning = absl::Seconds(1)) {
  ProcessGroupOptions options = context.group_options(name);
  options.timeout = timeout;
  options.slow_warning = slow_warning;
  options.on_slow = warnings->Collector();
  return options;
}

void RunInBothModes(int ranks, RankFunction function) {
  for (const SpawnMode mode : {SpawnMode::kThreads, SpawnMode::kProcesses}) {
    ExpectAllOk(Spawn(ranks, function, {.mode = mode}));
  }
}

void EnterInDifferentOrder(RankContext& context) {
  Warnings warnings;
  const auto a = InitProcessGroup(Options(context, "a", absl::Seconds(3), &warnings));
  const auto b = InitProcessGroup(Options(context, "b", absl::Seconds(3), &warnings));
  for (int i = 0; i < 3; ++i) a->Barrier().Wait();
  const Tensor x = Empty({5});
  const bool first = context.rank == 0;
  const std::string of_0 =
      "rank 0 waits in group \"a\" for collective 3 (AllReduce(float32 x 5, sum)), which rank 1 "
      "has not issued: ";
  const std::string of_1 =
      "rank 1 waits in group \"b\" for collective 0 (Broadcast(float32 x 5, root 0)), which rank 0 "
      "has not issued: ";
  const std::string end = "the ranks enter groups \"a\" and \"b\" in different order";
  RequireError(
      absl::StatusCode::kDeadlineExceeded,
      {first ? of_0 + of_1 + end : of_1 + of_0 + end,
       first ? "rank 1 did not call AllReduce" : "rank 0 did not call Broadcast", "within 3s"},
      [&] { (first ? a->AllReduce(x) : b->Broadcast(x)).Wait(); });
  context.store->Set(absl::StrCat("warned/", context.rank), warnings.All(), Patience());
  const std::string all =
      context.store->Get("warned/0", Patience()) + context.store->Get("warned/1", Patience());
  // On a busy machine the first to warn may know half of it.
  Require(absl::StrContains(all, end), "no warning of the circle: " + all);
  // The other group's error, if it came, tells it too; it stays usable otherwise.
  context.store->Set(absl::StrCat("done/", context.rank), "", Patience());
  context.store->Wait({"done/0", "done/1"}, Patience());
}

TEST(DifferentOrderTest, IsDiagnosedOnBothRanks) { RunInBothModes(2, EnterInDifferentOrder); }

// Group g01 has ranks 0 and 1, and so on; each rank waits in the group with the next one.
void EnterThreeGroups(RankContext& context) {
  Warnings warnings;
  const int me = context.rank;
  const auto pair = [&](int low, int high) -> std::shared_ptr<Communicator> {
    if (me != low && me != high) return nullptr;
    auto options = Options(context, absl::StrCat("g", low, high), absl::Seconds(3), &warnings);
    options.rank = me == low ? 0 : 1;
    options.local_rank = options.rank;
    options.world_size = options.local_world_size = 2;
    options.world_ranks = {low, high};
    return InitProcessGroup(options);
  };
  const auto g01 = pair(0, 1);
  const auto g12 = pair(1, 2);
  const auto g02 = pair(0, 2);
  const auto& mine = me == 0 ? g01 : me == 1 ? g12 : g02;
  context.store->Set(absl::StrCat("made/", me), "", Patience());
  context.store->Wait({"made/0", "made/1", "made/2"}, Patience());
  RequireError(absl::StatusCode::kDeadlineExceeded,
               {me == 0 ? "" : ": by rank of the job, rank ", "rank 0 waits in group \"g01\"",
                "rank 1 waits in group \"g12\"", "rank 2 waits in group \"g02\"",
                "the ranks enter groups \"g01\", \"g02\" and \"g12\" in different order"},
               [&] { mine->Barrier().Wait(); });
  context.store->Set(absl::StrCat("done/", me), "", Patience());
  context.store->Wait({"done/0", "done/1", "done/2"}, Patience());
}

TEST(DifferentOrderTest, IsDiagnosedOverThreeGroups) { RunInBothModes(3, EnterThreeGroups); }

// Issued without waiting in between, the order of two groups does not matter.
void IssueInDifferentOrder(RankContext& context) {
  Warnings warnings;
  const auto a = InitProcessGroup(Options(context, "a", absl::Seconds(60), &warnings));
  const auto b = InitProcessGroup(Options(context, "b", absl::Seconds(60), &warnings));
  const Tensor x = FromVector<float>({1, 2}, {2});
  const Tensor y = FromVector<float>({3, 5}, {2});
  std::vector<Work> works;
  for (int i = 0; i < 3; ++i) {
    if (context.rank == 0) works.push_back(a->AllReduce(x));
    works.push_back(b->AllReduce(y));
    if (context.rank == 1) works.push_back(a->AllReduce(x));
  }
  Work::All(works).Wait();
  Require(x.Item<float>({1}) == 16 && y.Item<float>({0}) == 24, "wrong sums");
}

TEST(DifferentOrderTest, IsRightWithoutWaitingInBetween) {
  RunInBothModes(2, IssueInDifferentOrder);
}

// A circle that ends before any deadline has been a warning only.
void WaitInACircleForAWhile(RankContext& context) {
  Warnings warnings;
  const auto a = InitProcessGroup(
      Options(context, "a", absl::Seconds(60), &warnings, absl::Milliseconds(500)));
  const auto b = InitProcessGroup(
      Options(context, "b", absl::Seconds(60), &warnings, absl::Milliseconds(500)));
  a->Barrier().Wait();
  const Tensor x = FromVector<float>({1, 2}, {2});
  const Tensor y = FromVector<float>({3, 5}, {2});
  if (context.rank == 0) {
    a->AllReduce(x).Wait();
    b->AllReduce(y).Wait();
  } else {
    const Work on_b = b->AllReduce(y);
    while (warnings.size() == 0) {
      try {
        on_b.Wait(Deadline::After(absl::Milliseconds(300)));
      } catch (const Error& error) {
        Require(error.code() == absl::StatusCode::kDeadlineExceeded, error.what());
      }
    }
    a->AllReduce(x).Wait();
    on_b.Wait();
    Require(absl::StrContains(warnings.All(), "rank 1 waits in group \"b\" for collective 0"),
            warnings.All());
  }
  Require(x.Item<float>({1}) == 4 && y.Item<float>({0}) == 6, "wrong sums");
  a->Barrier().Wait();
}

TEST(DifferentOrderTest, IsNoErrorBeforeTheDeadline) { RunInBothModes(2, WaitInACircleForAWhile); }

// Rank 2 comes when the others have been warned of it.
void WaitForASlowRank(RankContext& context) {
  Warnings warnings;
  const auto world = InitProcessGroup(
      Options(context, "world", absl::Seconds(60), &warnings, absl::Milliseconds(400)));
  const Tensor x = FromVector<float>({1, 2}, {2});
  for (int step = 0; step < 3; ++step) world->AllReduce(x).Wait();
  if (context.rank == 2) {
    context.store->Wait({"warned/0", "warned/1"}, Patience());
    world->AllReduce(x).Wait();
  } else {
    const Work work = world->AllReduce(x);
    const Deadline patience = Deadline::After(absl::Seconds(50));
    while (warnings.size() == 0 && !patience.Expired()) {
      try {
        work.Wait(Deadline::After(absl::Milliseconds(100)));
      } catch (const Error&) {
      }
    }
    context.store->Set(absl::StrCat("warned/", context.rank), "", Patience());
    work.Wait();
    Require(warnings.size() == 1, "one warning for one call: " + warnings.All());
    for (const std::string& part : {std::string("group \"world\": slow: for "),
                                    absl::StrCat("rank ", context.rank,
                                                 " waits in group \"world\" for collective 3 "
                                                 "(AllReduce(float32 x 2, sum)), which "),
                                    std::string("2 ha"), std::string("not issued: rank ")}) {
      Require(absl::StrContains(warnings.All(), part), part + " in " + warnings.All());
    }
  }
  Require(x.Item<float>({1}) == 162, "2 times 3 to the 4th");
  world->AllReduce(x).Wait();  // and the group goes on
}

TEST(SlowRankTest, IsNamedAndAwaited) { RunInBothModes(3, WaitForASlowRank); }

// Both receive before they send.
void ReceiveFromEachOther(RankContext& context) {
  Warnings warnings;
  const auto world = InitProcessGroup(Options(context, "world", absl::Seconds(3), &warnings));
  world->Barrier().Wait();
  const int peer = 1 - context.rank;
  RequireError(absl::StatusCode::kDeadlineExceeded,
               {"rank 0 waits in group \"world\" for message 0 (Recv(float32 x 3, from rank 1)), "
                "which rank 1 has not sent: ",
                "rank 1 waits in group \"world\" for message 0 (Recv(float32 x 3, from rank 0)), "
                "which rank 0 has not sent: ",
                "the ranks wait for each other"},
               [&] { world->Recv(Empty({3}), peer).Wait(); });
  context.store->Set(absl::StrCat("done/", context.rank), "", Patience());
  context.store->Wait({"done/0", "done/1"}, Patience());
}

TEST(TransferTest, ACircleOfReceives) { RunInBothModes(2, ReceiveFromEachOther); }

// A transfer waits for a rank that waits in a collective of another group.
void ReceiveAgainstACollective(RankContext& context) {
  Warnings warnings;
  const auto a = InitProcessGroup(Options(context, "a", absl::Seconds(3), &warnings));
  const auto b = InitProcessGroup(Options(context, "b", absl::Seconds(3), &warnings));
  a->Barrier().Wait();
  RequireError(
      absl::StatusCode::kDeadlineExceeded,
      {"rank 0 waits in group \"a\" for message 0 (Recv(float32 x 3, from rank 1)), which rank 1 "
       "has not sent: ",
       "rank 1 waits in group \"b\" for collective 0 (Barrier()), which rank 0 has not issued: ",
       "the ranks enter groups \"a\" and \"b\" in different order"},
      [&] { (context.rank == 0 ? a->Recv(Empty({3}), 1) : b->Barrier()).Wait(); });
  context.store->Set(absl::StrCat("done/", context.rank), "", Patience());
  context.store->Wait({"done/0", "done/1"}, Patience());
}

TEST(TransferTest, AgainstACollective) { RunInBothModes(2, ReceiveAgainstACollective); }

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
