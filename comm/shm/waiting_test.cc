// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Who does the work: threads that wait run collectives and move transfers themselves; and it gets
// done all the same when nobody waits, when many do, and when the communicator goes meanwhile.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {
namespace {

Deadline Soon() { return Deadline::After(absl::Seconds(20)); }

Tensor Filled(int64_t count, float first) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first + static_cast<float>(i % 251));
  return FromVector<float>(values, {count});
}

void RequireFilled(const Tensor& tensor, float first, float step, const std::string& what) {
  RequireValues(
      tensor, [&](int64_t i) { return first + step * static_cast<float>(i % 251); }, what);
}

void Eventually(const std::string& what, const std::function<bool()>& condition) {
  const Deadline deadline = Soon();
  while (!condition()) {
    Require(!deadline.Expired(), absl::StrCat("never: ", what));
    absl::SleepFor(absl::Milliseconds(1));
  }
}

// Peers complete a collective, small or large, that a rank has issued and does not wait for.
void IssueAndStayAway(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  for (const int64_t count : {5, 4096, 4097, 70000}) {
    const std::string done = absl::StrCat("done/", count, "/");
    const Tensor x = Filled(count, static_cast<float>(context.rank));
    const Work work = comm->AllReduce(x);
    if (context.rank == 0) {
      // The others have their results; only then this rank looks for its own.
      context.store->Wait({done + "1", done + "2"}, Soon());
      work.Wait();
    } else {
      work.Wait();
      context.store->Set(done + std::to_string(context.rank), "", Soon());
    }
    RequireFilled(x, 3, 3, done);
  }
  comm->Barrier().Wait();
}

TEST(WaitingTest, PeersNeedNobodyToWait) {
  ExpectAllOk(Spawn(3, IssueAndStayAway, {.mode = SpawnMode::kThreads}));
  ExpectAllOk(Spawn(3, IssueAndStayAway));
}

// A work is asked for in each way but by Wait() without a deadline.
void AskInOtherWays(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  for (int round = 0; round < 20; ++round) {
    const auto issue = [&] { return comm->AllReduce(Filled(9, 1)); };
    const Work polled = issue();
    Eventually("IsCompleted", [&] { return polled.IsCompleted(); });
    std::atomic<int> called{0};
    issue().OnComplete([&](const Error* error) { called.fetch_add(error == nullptr ? 1 : 100); });
    Eventually("OnComplete", [&] { return called.load() > 0; });
    Require(called.load() == 1, "a callback ran more than once, or with an error");
    const Work then = issue().Then([&] { called.fetch_add(1); });
    then.Wait();
    Require(called.load() == 2, "Then's function did not run");
    issue().Wait(Soon());
    Work::All({issue(), issue()}).Wait(Soon());
  }
}

TEST(WaitingTest, WorksAskedForInOtherWays) {
  for (const int ranks : {1, 2, 3}) {
    ExpectAllOk(Spawn(ranks, AskInOtherWays, {.mode = SpawnMode::kThreads}));
  }
  ExpectAllOk(Spawn(2, AskInOtherWays));
}

// What nobody asks for is done too, soon enough to free what it holds.
void DropTheWork(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  std::atomic<bool> freed{false};
  std::vector<float> memory(16, 1);
  {
    const Tensor x =
        FromStorage(Storage::Wrap(
                        Cpu(), memory.data(), 64, [&] { freed = true; }, MemoryCategory::kOther),
                    ShapeSpan({16}), DType::kFloat32);
    comm->AllReduce(x);
  }
  Eventually("the tensor is let go", [&] { return freed.load(); });
  Require(memory[15] == static_cast<float>(context.world_size), "the sum of what nobody asked for");
  context.store->Set(absl::StrCat("freed/", context.rank), "", Soon());
  for (int rank = 0; rank < context.world_size; ++rank) {
    context.store->Get(absl::StrCat("freed/", rank), Soon());
  }
}

TEST(WaitingTest, NobodyAsks) {
  for (const int ranks : {1, 2}) {
    ExpectAllOk(Spawn(ranks, DropTheWork, {.mode = SpawnMode::kThreads}));
  }
}

// A rank that does not come is an error by the deadline though nobody waits: rank 1 learns it from
// the group.
void MissUnawaited(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  if (context.rank == 0) {
    const Work work = comm->AllReduce(Filled(3, 0), {.timeout = absl::Milliseconds(50)});
    context.store->Get("seen", Soon());
    RequireError(absl::StatusCode::kDeadlineExceeded, {"rank 1", "AllReduce"},
                 [&] { work.Wait(); });
    return;
  }
  Eventually("the group's error", [&] {
    try {
      comm->Recv(Empty({1}), context.rank);  // never sent: only to be told
      return false;
    } catch (const Error& error) {
      return error.code() == absl::StatusCode::kDeadlineExceeded;
    }
  });
  context.store->Set("seen", "", Soon());
}

TEST(WaitingTest, DeadlinesHoldWithoutWaiting) {
  ExpectAllOk(Spawn(2, MissUnawaited, {.mode = SpawnMode::kThreads}));
}

// Several threads of each rank wait for transfers at once, each with a peer's thread of its own.
void ManyThreadsTransfer(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  constexpr int kThreads = 4;
  constexpr int kRounds = 100;
  // A pair of ranks meets in order: so each thread has a group of its own for its exchange, and all
  // share one for collectives' transfers with themselves.
  std::vector<std::shared_ptr<Communicator>> groups;
  for (int t = 0; t < kThreads; ++t) {
    groups.push_back(MakeTestGroup(context, absl::Seconds(30), absl::StrCat("thread", t)));
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const int next = (context.rank + 1) % context.world_size;
      const int last = (context.rank + context.world_size - 1) % context.world_size;
      for (int round = 0; round < kRounds; ++round) {
        // Some in one fragment, some pulled.
        const int64_t count = round % 10 == t ? 9000 : 3;
        const Tensor out = Empty({count});
        const float mine = static_cast<float>(100 * context.rank + round);
        const float theirs = static_cast<float>(100 * last + round);
        const Work send = groups[static_cast<size_t>(t)]->Send(Filled(count, mine), next);
        groups[static_cast<size_t>(t)]->Recv(out, last).Wait();
        if (out.Item<float>({2}) != theirs + 2) wrong.fetch_add(1);
        send.Wait();
        // On the shared group: to itself, in no order among the threads.
        const Tensor same = Empty({1});
        comm->Batch(
                {Transfer::Send(Filled(1, 7), context.rank), Transfer::Recv(same, context.rank)})
            .Wait();
        if (same.Item<float>({0}) != 7) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Require(wrong.load() == 0, "values");
  comm->Barrier().Wait();
  for (const auto& group : groups) group->Barrier().Wait();
}

TEST(WaitingTest, ManyThreadsOfARankWaitForTransfers) {
  ExpectAllOk(Spawn(2, ManyThreadsTransfer, {.mode = SpawnMode::kThreads}));
  ExpectAllOk(Spawn(3, ManyThreadsTransfer));
}

// The same work, waited for by several threads, and others issued behind it meanwhile.
void ManyThreadsWait(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  for (int round = 0; round < 100; ++round) {
    const Tensor x = Filled(7, static_cast<float>(round));
    const Work work = comm->AllReduce(x);
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        work.Wait();
        right.fetch_add(x.Item<float>({3}) == static_cast<float>(2 * (round + 3)) ? 1 : 0);
      });
    }
    const Tensor y = Filled(5000, static_cast<float>(round));
    comm->AllReduce(y).Wait();
    for (std::thread& thread : threads) thread.join();
    Require(right.load() == 3, absl::StrCat("round ", round));
    RequireFilled(y, static_cast<float>(2 * round), 2, "the one behind");
  }
}

TEST(WaitingTest, ManyThreadsWaitForOneWork) {
  ExpectAllOk(Spawn(2, ManyThreadsWait, {.mode = SpawnMode::kThreads}));
  ExpectAllOk(Spawn(2, ManyThreadsWait));
}

// A thread that is in Wait() when the communicator goes gets an error.
void DestroyUnderWaiters(RankContext& context) {
  if (context.rank == 1) {
    const auto comm = MakeTestGroup(context);
    context.store->Get("over", Soon());
    return;
  }
  auto comm = MakeTestGroup(context);
  const std::vector<Work> works = {comm->Recv(Empty({3}), 1), comm->Barrier(),
                                   comm->Send(Filled(3, 0), 1)};
  std::vector<std::thread> threads;
  std::atomic<int> aborted{0};
  for (const Work& work : works) {
    threads.emplace_back([&] {
      try {
        work.Wait();
      } catch (const Error& error) {
        aborted.fetch_add(error.code() == absl::StatusCode::kAborted ? 1 : 0);
      }
    });
  }
  // Threads may be in Wait() by now or not: both must do, and each is likely in one of the runs.
  absl::SleepFor(absl::Milliseconds(context.argument.empty() ? 0 : 30));
  const Stopwatch watch;
  comm.reset();
  Require(watch.ElapsedSeconds() < 5, "the destructor must not wait for peers");
  for (std::thread& thread : threads) thread.join();
  Require(aborted.load() == 3, absl::StrCat(aborted.load(), " of 3 were aborted"));
  context.store->Set("over", "", Soon());
}

TEST(WaitingTest, TheCommunicatorGoesUnderItsWaiters) {
  for (const char* argument : {"", "later"}) {
    ExpectAllOk(Spawn(2, DestroyUnderWaiters, {.mode = SpawnMode::kThreads, .argument = argument}));
    ExpectAllOk(Spawn(2, DestroyUnderWaiters, {.argument = argument}));
  }
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
