// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// What goes wrong in a group is an error on every rank, soon, with names: dead ranks, missing
// ranks, ranks that disagree, ranks that leave. Promised times are printed; tests fail at ten times
// them.

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/backend_tests/backend_test.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/subgroups.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {
namespace {

constexpr Deadline kNever = Deadline();

void KillInsideAllReduce(RankContext& context) {
  const auto comm = MakeTestGroup(context, absl::Seconds(60));
  const Tensor tensor =
      FromStorage(comm->Allocate(8 << 20), ShapeSpan({int64_t{2} << 20}), DType::kFloat32);
  const int victim = 2;
  for (int k = 0; k < 5; ++k) comm->AllReduce(tensor).Wait();
  comm->Barrier().Wait();  // nobody is still in one of those
  if (context.rank == victim) {
    comm->AllReduce(tensor);
    context.store->Set("killed_at", absl::StrCat(MonotonicNanoseconds()), kNever);
    kill(getpid(), SIGKILL);
  }
  RequireError(absl::StatusCode::kUnavailable,
               {"AllReduce(float32 x 2097152, sum)", "rank 2 has died", "group \"world\"",
                absl::StrCat("rank ", context.rank, " of group"), "collective "},
               [&] {
                 for (;;) comm->AllReduce(tensor).Wait();
               });
  int64_t killed_at = 0;
  Require(absl::SimpleAtoi(context.store->Get("killed_at", kNever), &killed_at), "time of death");
  const double seconds = static_cast<double>(MonotonicNanoseconds() - killed_at) * 1e-9;
  std::printf("rank %d noticed the death after %.3f s (promised: 1 s)\n", context.rank, seconds);
  Require(seconds < 10, "the death was noticed too late");
  // The group stays in the error state.
  const Stopwatch watch;
  RequireError(absl::StatusCode::kUnavailable, {"error state", "rank 2"},
               [&] { comm->AllReduce(tensor).Wait(); });
  Require(watch.ElapsedSeconds() < 1, "a later call must throw at once");
}

LOCKSTEP_BACKEND_SUITE(DeathTest);

TEST_P(DeathTest, OneOfFourKilledInsideAllReduce) {
  const SpawnResult result = Spawn(4, KillInsideAllReduce);
  EXPECT_EQ(result.ranks[2].signal, SIGKILL);
  EXPECT_EQ(result.first_failure, 2);
  EXPECT_TRUE(result.ranks[0].ok()) << result.ranks[0].ToString();
  EXPECT_TRUE(result.ranks[1].ok()) << result.ranks[1].ToString();
  EXPECT_TRUE(result.ranks[3].ok()) << result.ranks[3].ToString();
}

// ---- Disagreement ----

struct Mismatch {
  const char* name;
  std::function<Work(Communicator&, const Tensor&, const Tensor&)> usual;  // ranks but the last
  std::function<Work(Communicator&, const Tensor&, const Tensor&)> odd;    // the last rank
  std::string usual_text;
  std::string odd_text;
};

std::vector<Mismatch> Mismatches() {
  using T = const Tensor&;
  return {
      {"op", [](Communicator& c, T x, T) { return c.AllReduce(x); },
       [](Communicator& c, T x, T) { return c.Broadcast(x); }, "AllReduce(float32 x 5, sum)",
       "Broadcast(float32 x 5, root 0)"},
      {"dtype", [](Communicator& c, T x, T) { return c.AllReduce(x); },
       [](Communicator& c, T, T i) { return c.AllReduce(i); }, "AllReduce(float32 x 5, sum)",
       "AllReduce(int32 x 5, sum)"},
      {"count", [](Communicator& c, T x, T) { return c.AllReduce(x); },
       [](Communicator& c, T, T) { return c.AllReduce(Empty({70000})); },
       "AllReduce(float32 x 5, sum)", "AllReduce(float32 x 70000, sum)"},
      {"empty", [](Communicator& c, T x, T) { return c.AllReduce(x); },
       [](Communicator& c, T, T) { return c.AllReduce(Empty({0})); }, "AllReduce(float32 x 5, sum)",
       "AllReduce(float32 x 0, sum)"},
      {"reduction", [](Communicator& c, T x, T) { return c.AllReduce(x); },
       [](Communicator& c, T x, T) { return c.AllReduce(x, {.op = ReduceOp::kMax}); },
       "AllReduce(float32 x 5, sum)", "AllReduce(float32 x 5, max)"},
      {"root", [](Communicator& c, T x, T) { return c.Broadcast(x, {.root = 0}); },
       [](Communicator& c, T x, T) { return c.Broadcast(x, {.root = 1}); },
       "Broadcast(float32 x 5, root 0)", "Broadcast(float32 x 5, root 1)"},
      {"reduce_tag", [](Communicator& c, T x, T) { return c.AllReduce(x, {.tag = 7}); },
       [](Communicator& c, T x, T) { return c.AllReduce(x, {.tag = 8}); },
       "AllReduce(float32 x 5, sum, tag 7)", "AllReduce(float32 x 5, sum, tag 8)"},
      {"gather_tag",
       [](Communicator& c, T x, T) { return c.AllGather(x, Empty({5 * c.size()}), {.tag = 1}); },
       [](Communicator& c, T x, T) { return c.AllGather(x, Empty({5 * c.size()})); },
       "AllGather(float32 x 5, tag 1)", "AllGather(float32 x 5)"},
      {"scatter_tag",
       [](Communicator& c, T x, T) {
         return c.ReduceScatter(Empty({5 * c.size()}), x, {.tag = 1});
       },
       [](Communicator& c, T x, T) {
         return c.ReduceScatter(Empty({5 * c.size()}), x, {.tag = 2});
       },
       "ReduceScatter(float32 x 5, sum, tag 1)", "ReduceScatter(float32 x 5, sum, tag 2)"},
      {"list_tag", [](Communicator& c, T x, T) { return c.AllReduceCoalesced({x}, {.tag = 3}); },
       [](Communicator& c, T x, T) { return c.AllReduceCoalesced({x}, {.tag = 4}); },
       "AllReduce(float32 x 5 in 1 tensors, list 0de21504f16dc720, sum, tag 3)",
       "AllReduce(float32 x 5 in 1 tensors, list 0de21504f16dc720, sum, tag 4)"},
      {"barrier", [](Communicator& c, T, T) { return c.Barrier(); },
       [](Communicator& c, T x, T) { return c.AllReduce(x); }, "Barrier()",
       "AllReduce(float32 x 5, sum)"}};
}

void Disagree(RankContext& context) {
  const Tensor x = FromVector<float>({1, 2, 3, 4, 5}, {5});
  const Tensor i = FromVector<int32_t>({1, 2, 3, 4, 5}, {5});
  for (const Mismatch& mismatch : Mismatches()) {
    const auto comm = MakeTestGroup(context, absl::Seconds(60), mismatch.name);
    comm->Barrier().Wait();
    const bool odd = context.rank == context.world_size - 1;
    const Stopwatch watch;
    RequireError(absl::StatusCode::kInvalidArgument,
                 {"ranks disagree on collective 1", mismatch.usual_text, mismatch.odd_text,
                  absl::StrCat("rank ", context.world_size - 1, " called ", mismatch.odd_text)},
                 [&] { (odd ? mismatch.odd : mismatch.usual)(*comm, x, i).Wait(); });
    Require(watch.ElapsedSeconds() < 10, "a disagreement must be reported at once");
    RequireError(absl::StatusCode::kInvalidArgument, {"error state", mismatch.odd_text},
                 [&] { comm->Barrier().Wait(); });
  }
}

LOCKSTEP_BACKEND_SUITE(MismatchTest);

TEST_P(MismatchTest, EveryRankShowsBothSignatures) {
  for (const int ranks : {2, 3}) {
    for (const SpawnMode mode : Modes()) {
      const SpawnResult result = Spawn(ranks, Disagree, {.mode = mode});
      ExpectAllOk(result);
    }
  }
}

// Rank 2 never calls: the two that disagree do not wait for it.
void DisagreeEarly(RankContext& context) {
  const auto comm = MakeTestGroup(context, absl::Seconds(60));
  const Tensor x = Empty({5});
  if (context.rank == 2) {
    context.store->Wait({"raised/0", "raised/1"}, Deadline::After(absl::Seconds(30)));
    RequireError(absl::StatusCode::kInvalidArgument, {"rank 0 called Barrier()", "rank 1 called"},
                 [&] { comm->Barrier().Wait(); });
    return;
  }
  RequireError(absl::StatusCode::kInvalidArgument, {"rank 0 called Barrier()", "rank 1 called"},
               [&] { (context.rank == 0 ? comm->Barrier() : comm->AllReduce(x)).Wait(); });
  context.store->Set(absl::StrCat("raised/", context.rank), "", kNever);
}

TEST_P(MismatchTest, IsReportedWithoutTheMissingRank) {
  for (const SpawnMode mode : Modes()) {
    const SpawnResult result = Spawn(3, DisagreeEarly, {.mode = mode});
    ExpectAllOk(result);
  }
}

// ---- Missing ranks ----

void MissRank(RankContext& context) {
  const auto a = MakeTestGroup(context, absl::Seconds(20), "a");
  const auto b = MakeTestGroup(context, absl::Seconds(20), "b");
  if (context.rank == 2) {
    context.store->Wait({"done/0", "done/1"}, Deadline::After(absl::Seconds(30)));
    return;
  }
  const absl::Duration timeout = absl::Milliseconds(1500);
  // Both start at the same time, or one would be missing for the other on a busy machine.
  context.store->Set(absl::StrCat("ready/", context.rank), "", kNever);
  context.store->Wait({"ready/0", "ready/1"}, Deadline::After(absl::Seconds(30)));
  const Stopwatch watch;
  Work on_a = a->AllReduce(Empty({3}), {.timeout = timeout});
  Work on_b = b->AllReduce(Empty({60000}), {.timeout = timeout});
  for (const Work& work : {on_a, on_b}) {
    RequireError(absl::StatusCode::kDeadlineExceeded,
                 {"rank 2 did not call AllReduce(float32 x ", "within 1.5s", "collective 0"},
                 [&] { work.Wait(); });
    Require(work.IsCompleted(), "a failed work is completed");
    RequireError(absl::StatusCode::kDeadlineExceeded, {"rank 2"}, [&] { work.Wait(); });
  }
  const double seconds = watch.ElapsedSeconds();
  std::printf("rank %d: a deadline of 1.5 s was reported after %.3f s\n", context.rank, seconds);
  Require(seconds >= 1.4 && seconds < 15, "the deadline must be kept");
  const Stopwatch later;
  RequireError(absl::StatusCode::kDeadlineExceeded, {"error state"}, [&] { a->Barrier(); });
  Require(later.ElapsedSeconds() < 1, "later calls must throw at once");
  context.store->Set(absl::StrCat("done/", context.rank), "", kNever);
}

LOCKSTEP_BACKEND_SUITE(MissingRankTest);

TEST_P(MissingRankTest, IsNamedAtTheDeadline) {
  for (const SpawnMode mode : Modes()) {
    const SpawnResult result = Spawn(3, MissRank, {.mode = mode});
    ExpectAllOk(result);
  }
}

void MissRankAtConstruction(RankContext& context) {
  if (context.rank == 2) {
    context.store->Wait({"done/0", "done/1"}, Deadline::After(absl::Seconds(30)));
    return;
  }
  RequireError(absl::StatusCode::kDeadlineExceeded, {"InitProcessGroup", "rank 2"},
               [&] { MakeTestGroup(context, absl::Milliseconds(1500)); });
  context.store->Set(absl::StrCat("done/", context.rank), "", kNever);
}

TEST_P(MissingRankTest, IsNamedAtConstruction) {
  for (const SpawnMode mode : Modes()) {
    const SpawnResult result = Spawn(3, MissRankAtConstruction, {.mode = mode});
    ExpectAllOk(result);
  }
}

// ---- Leaving and aborting ----

void LeaveEarly(RankContext& context) {
  auto comm = MakeTestGroup(context, absl::Seconds(60));
  comm->Barrier().Wait();
  if (context.rank == 1) {
    comm.reset();
    context.store->Wait({"done/0", "done/2"}, Deadline::After(absl::Seconds(30)));
    return;
  }
  RequireError(absl::StatusCode::kUnavailable, {"rank 1 has left"},
               [&] { comm->AllReduce(Empty({5})).Wait(); });
  context.store->Set(absl::StrCat("done/", context.rank), "", kNever);
}

LOCKSTEP_BACKEND_SUITE(LeaveTest);

TEST_P(LeaveTest, IsNoticedByThoseWhoWait) {
  for (const SpawnMode mode : Modes()) {
    const SpawnResult result = Spawn(3, LeaveEarly, {.mode = mode});
    ExpectAllOk(result);
  }
}

// A rank that throws with collectives in flight unwinds at once, and its peers hear of it.
void ThrowMidway(RankContext& context) {
  const auto comm = MakeTestGroup(context, absl::Seconds(60));
  std::vector<Work> works;
  if (context.rank == 1) {
    works.push_back(comm->AllReduce(Empty({5})));
    works.push_back(comm->AllReduce(Empty({50000})));
    throw OutOfRangeError("planted");
  }
  RequireError(absl::StatusCode::kUnavailable, {"rank 1 has left"}, [&] {
    for (int k = 0; k < 3; ++k) comm->AllReduce(Empty({k == 0 ? 5 : 50000})).Wait();
  });
}

TEST_P(LeaveTest, ByAnExceptionWithWorkPending) {
  for (const SpawnMode mode : Modes()) {
    const SpawnResult result = Spawn(3, ThrowMidway, {.mode = mode});
    EXPECT_TRUE(result.ranks[0].ok()) << result.ranks[0].ToString();
    EXPECT_TRUE(result.ranks[2].ok()) << result.ranks[2].ToString();
    EXPECT_EQ(result.first_failure, 1);
    EXPECT_EQ(result.ranks[1].error, "planted");
    EXPECT_EQ(result.ranks[1].code, absl::StatusCode::kOutOfRange);
  }
}

void DestroyWithPendingWork(RankContext& context) {
  auto comm = MakeTestGroup(context, absl::Seconds(60));
  if (context.rank == 0) {
    const Work running = comm->AllReduce(Empty({5}));
    const Work queued = comm->AllReduce(Empty({6}));
    const Stopwatch watch;
    comm.reset();
    Require(watch.ElapsedSeconds() < 5, "the destructor must not wait for peers");
    RequireError(absl::StatusCode::kAborted, {"AllReduce"}, [&] { running.Wait(); });
    RequireError(absl::StatusCode::kAborted, {"AllReduce"}, [&] { queued.Wait(); });
    context.store->Set("done", "", kNever);
  }
  context.store->Wait({"done"}, Deadline::After(absl::Seconds(30)));
}

TEST_P(LeaveTest, FailsWhatIsPending) {
  for (const SpawnMode mode : Modes()) {
    const SpawnResult result = Spawn(2, DestroyWithPendingWork, {.mode = mode});
    EXPECT_NO_THROW(result.ThrowIfFailed());
  }
}

// Rank 0 leaves as soon as it has everything, while the others look whether it has taken the first
// of what they sent.
void LeaveWithAllThatWasSent(RankContext& context) {
  const auto world = MakeTestGroup(context, absl::Seconds(60));
  constexpr int kGroups = 50, kMessages = 12;
  for (int k = 0; k < kGroups; ++k) {
    const auto comm = Split(*world, /*color=*/0);
    std::vector<Work> works;
    for (int m = 0; m < kMessages; ++m) {
      if (context.rank > 0) {
        const auto value = static_cast<float>(10 * context.rank + m);
        works.push_back(comm->Send(FromVector<float>({value, value, value}, {3}), 0));
        continue;
      }
      for (const int peer : {1, 2}) {
        const Tensor x = Empty({3});
        comm->Recv(x, peer).Wait();
        RequireValues(
            x, [&](int64_t) { return static_cast<float>(10 * peer + m); },
            absl::StrCat("group ", k));
      }
    }
    Work::All(std::move(works)).Wait();
  }
}

TEST_P(LeaveTest, WithAllThatWasSentIsNoError) {
  for (const SpawnMode mode : Modes())
    ExpectAllOk(Spawn(3, LeaveWithAllThatWasSent, {.mode = mode}));
}

void AbortWaiters(RankContext& context) {
  const auto comm = MakeTestGroup(context, absl::Seconds(60));
  if (context.rank == 1) {
    comm->Abort("the disk is full");
  } else {
    RequireError(absl::StatusCode::kAborted, {"aborted by rank 1", "the disk is full"},
                 [&] { comm->AllReduce(Empty({5})).Wait(); });
  }
  RequireError(absl::StatusCode::kAborted, {"error state", "the disk is full"}, [&] {
    for (;;) comm->Barrier().Wait();
  });
}

LOCKSTEP_BACKEND_SUITE(AbortTest);

TEST_P(AbortTest, ReachesEveryRank) {
  for (const SpawnMode mode : Modes()) {
    const SpawnResult result = Spawn(3, AbortWaiters, {.mode = mode});
    ExpectAllOk(result);
  }
}

// After an error the same ranks can make a group again.
void Recover(RankContext& context) {
  {
    const auto comm = MakeTestGroup(context, absl::Seconds(60));
    RequireError(absl::StatusCode::kInvalidArgument, {"ranks disagree"},
                 [&] { comm->AllReduce(Empty({context.rank + 1})).Wait(); });
  }
  const auto comm = MakeTestGroup(context, absl::Seconds(60));
  const Tensor ones = FromVector<float>({1, 1}, {2});
  comm->AllReduce(ones).Wait();
  Require(ones.Item<float>({1}) == static_cast<float>(context.world_size), "after recovery");
}

LOCKSTEP_BACKEND_SUITE(RecoveryTest);

TEST_P(RecoveryTest, ANewGroupWorks) {
  for (const SpawnMode mode : Modes()) {
    const SpawnResult result = Spawn(3, Recover, {.mode = mode});
    ExpectAllOk(result);
  }
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
