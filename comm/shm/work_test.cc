// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Works: deadlines of one wait, completion callbacks and chains, by hand and on a group.

#include "lockstep/comm/work.h"

#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {
namespace {

std::shared_ptr<PendingWork> NewPending() {
  return std::make_shared<PendingWork>(std::vector<Tensor>(),
                                       Signature{.count = 5, .op = CollectiveId::kAllGather});
}

TEST(WorkTest, ADefaultWorkIsComplete) {
  const Work work;
  EXPECT_TRUE(work.IsCompleted());
  work.Wait(Deadline::After(absl::ZeroDuration()));
  int calls = 0;
  work.OnComplete([&](const Error* error) { calls += error == nullptr ? 1 : 100; });
  work.Then([&] { ++calls; }).Wait();
  Work::All({}).Wait();
  EXPECT_EQ(calls, 2);
}

TEST(WorkTest, ADeadlineEndsOneWait) {
  const auto state = NewPending();
  const Work work(state);
  const Work both = Work::All({work, Work()});
  for (const Work& w : {work, both}) {
    EXPECT_TRUE(
        absl::StrContains(MessageOf([&] { w.Wait(Deadline::After(absl::Milliseconds(5))); }),
                          "AllGather(uint8 x 5) is not complete by the deadline of this wait"));
  }
  EXPECT_FALSE(work.IsCompleted());
  state->Complete(std::nullopt);
  work.Wait(Deadline::After(absl::ZeroDuration()));
  both.Wait();
}

TEST(WorkTest, CallbacksRunOnceInOrderBeforeWaitReturns) {
  const auto state = NewPending();
  const Work work(state);
  std::string order;
  std::thread::id where;
  work.OnComplete([&](const Error* error) {
    order += error == nullptr ? "a" : "?";
    where = std::this_thread::get_id();
    work.OnComplete([&](const Error*) { order += "c"; });  // while they run
  });
  work.OnComplete([&](const Error*) { order += "b"; });
  std::thread completer([&] { state->Complete(std::nullopt); });
  const std::thread::id id = completer.get_id();
  work.Wait();
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(where, id);
  completer.join();
  work.OnComplete([&](const Error*) { where = std::this_thread::get_id(); });
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(WorkTest, WhatACallbackThrowsIsThrownByWait) {
  const auto state = NewPending();
  const Work work(state);
  bool second = false;
  work.OnComplete([](const Error*) { throw DataLossError("bad bytes"); });
  work.OnComplete([&](const Error* error) { second = error != nullptr; });
  state->Complete(std::nullopt);
  EXPECT_TRUE(second);
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(MessageOf([&] { work.Wait(); }),
              "a completion callback of AllGather(uint8 x 5): bad bytes");
  }
  // A work's own error comes first.
  const auto failed = NewPending();
  failed->OnComplete([](const Error*) { throw std::bad_alloc(); });
  failed->Complete(UnavailableError("rank 1 has died"));
  EXPECT_EQ(MessageOf([&] { Work(failed).Wait(); }), "rank 1 has died");
}

TEST(WorkTest, ThenChains) {
  const auto state = NewPending();
  int runs = 0;
  const Work second = Work(state).Then([&] { ++runs; });
  const Work third = second.Then([&] {
    ++runs;
    throw OutOfRangeError("third");
  });
  const Work fourth = third.Then([&] { runs += 100; });
  EXPECT_FALSE(second.IsCompleted());
  state->Complete(std::nullopt);
  second.Wait();
  EXPECT_EQ(MessageOf([&] { third.Wait(); }), "third");
  EXPECT_EQ(MessageOf([&] { fourth.Wait(); }), "third");
  EXPECT_EQ(runs, 2);
}

TEST(WorkTest, AllReportsTheFirstErrorOnceAllAreDone) {
  const auto a = NewPending();
  const auto b = NewPending();
  const Work both = Work::All({Work(a), Work(b)});
  std::string seen = "nothing";
  both.OnComplete([&](const Error* error) { seen = std::string(error->message()); });
  b->Complete(AbortedError("b"));
  EXPECT_EQ(seen, "nothing");
  EXPECT_FALSE(both.IsCompleted());
  a->Complete(AbortedError("a"));
  EXPECT_EQ(seen, "a");
  EXPECT_EQ(MessageOf([&] { both.Wait(); }), "a");
}

// A wait's deadline leaves the group alone; callbacks may issue the next collective.
void OnAGroup(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const Tensor x = Empty({3});
  FillWith(x, [](int64_t) { return 1; });
  if (comm->rank() == 0) {
    const Work work = comm->AllReduce(x);
    RequireError(absl::StatusCode::kDeadlineExceeded, {"AllReduce(float32 x 3, sum) is not"},
                 [&] { work.Wait(Deadline::After(absl::Milliseconds(50))); });
    Require(!work.IsCompleted(), "the collective goes on");
    context.store->Set("waited", "", Deadline());
    work.Wait();
  } else {
    context.store->Wait({"waited"}, Deadline::After(absl::Seconds(30)));
    comm->AllReduce(x).Wait();
  }
  Work second;
  std::atomic<int> calls{0};
  const Work chain = comm->AllReduce(x).Then([&] { second = comm->AllReduce(x); });
  chain.OnComplete([&](const Error*) { ++calls; });
  chain.Wait();
  second.Wait();
  const int size = comm->size();
  RequireValues(
      x, [&](int64_t) { return size * size * size; }, "three sums");
  Require(calls == 1, "a callback runs once");
  // Transfers too, and failures.
  const Tensor y = Empty({3});
  const int other = 1 - comm->rank();
  comm->Batch({Transfer::Send(x, other), Transfer::Recv(y, other)}).Then([&] { ++calls; }).Wait();
  Require(calls == 2, "after the batch");
  std::atomic<bool> failed{false};
  const Work wrong = comm->AllReduce(Empty({comm->rank() + 1}));
  wrong.OnComplete([&](const Error* error) { failed = error != nullptr; });
  RequireError(absl::StatusCode::kInvalidArgument, {"ranks disagree"}, [&] { wrong.Wait(); });
  Require(failed, "callbacks hear of failures");
}

TEST(WorkTest, OnAGroup) {
  ExpectAllOk(Spawn(2, OnAGroup, {.mode = SpawnMode::kThreads}));
  ExpectAllOk(Spawn(2, OnAGroup));
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
