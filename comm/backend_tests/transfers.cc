// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Send and Recv: values on all paths, order, independence of collectives and of other pairs, and
// what each end sees when calls do not fit, peers are missing, leave, or die.

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/backend_tests/backend_test.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm {
namespace {

constexpr Deadline kNever = Deadline();

double Value(int from, int to, int64_t message, int64_t i) {
  return static_cast<double>((i * 7 + i / 97 + from * 13 + to * 5 + message) % 120);
}

// Every pair, itself included: all dtypes, sizes around the borders of the paths.
void CheckValues(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const int size = comm->size();
  const int me = comm->rank();
  int64_t message = 0;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                            DType::kInt64, DType::kInt32, DType::kUInt8}) {
    const int64_t item = ItemSize(dtype);
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{5}, (16 << 10) / item,
                                (16 << 10) / item + 1, int64_t{70001}}) {
      ++message;
      std::vector<Tensor> received;
      std::vector<Transfer> transfers;
      for (int peer = 0; peer < size; ++peer) {
        Tensor mine = Empty({count}, {dtype, {}});
        FillWith(mine, [&](int64_t i) { return Value(me, peer, message, i); });
        transfers.push_back(Transfer::Send(mine, peer, message));
        received.push_back(Empty({count}, {dtype, {}}));
        transfers.push_back(Transfer::Recv(received.back(), peer, message));
      }
      comm->Batch(transfers).Wait();
      for (int peer = 0; peer < size; ++peer) {
        RequireValues(
            received[static_cast<size_t>(peer)],
            [&](int64_t i) { return Value(peer, me, message, i); },
            absl::StrCat("Recv of ", DTypeName(dtype), " x ", count, " from ", peer));
      }
    }
  }
  Require(comm->sequence() == 0, "transfers take no sequence number");
  comm->Batch({}).Wait();
  comm->Barrier().Wait();
}

// Field report C-1.
void CheckStrided(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const int next = (comm->rank() + 1) % comm->size();
  const int last = (comm->rank() + comm->size() - 1) % comm->size();
  struct Layout {
    std::vector<int64_t> shape, strides;
    int64_t elements;
  };
  const Layout layouts[] = {{{3}, {2}, 7},
                            {{2}, {2}, 5},
                            {{3, 2}, {1, 3}, 8},
                            {{5, 3}, {7, 2}, 40},
                            {{100, 80}, {160, 2}, 16001}};
  for (const Layout& layout : layouts) {
    const Tensor in = StridedView(layout.shape, layout.strides, layout.elements);
    FillWith(in, [&](int64_t i) { return Value(comm->rank(), next, 0, i); });
    const Tensor out = StridedView(layout.shape, layout.strides, layout.elements);
    comm->Batch({Transfer::Recv(out, last), Transfer::Send(in, next)}).Wait();
    RequireValues(
        out, [&](int64_t i) { return Value(last, comm->rank(), 0, i); }, "strided Recv");
    RequireGapsUntouched(out, layout.elements);
  }
}

// Many in flight, waited for in another order; the senders' handles are dropped at once.
void CheckOrder(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  constexpr int64_t kMessages = 200;
  std::vector<Work> works;
  if (comm->rank() == 0) {
    for (int64_t m = 0; m < kMessages; ++m) {
      const Tensor tensor = Empty({m % 7 == 6 ? 9000 + m : m});
      FillWith(tensor, [&](int64_t i) { return Value(0, 1, m, i); });
      works.push_back(comm->Send(tensor, 1, {.tag = m}));
    }
    for (size_t m = works.size(); m-- > 0;) works[m].Wait();
  } else if (comm->rank() == 1) {
    std::vector<Tensor> tensors;
    for (int64_t m = 0; m < kMessages; ++m) {
      tensors.push_back(Empty({m % 7 == 6 ? 9000 + m : m}));
      works.push_back(comm->Recv(tensors.back(), 0, {.tag = m}));
    }
    for (int64_t m = kMessages - 1; m >= 0; --m) {
      works[static_cast<size_t>(m)].Wait();
      RequireValues(
          tensors[static_cast<size_t>(m)], [&](int64_t i) { return Value(0, 1, m, i); },
          absl::StrCat("message ", m));
    }
  }
  comm->Barrier().Wait();
}

// Field report C-7: a transfer holds up neither collectives nor other transfers, and a collective
// no transfer: rank 0's AllReduce waits for rank 1, which waits for what rank 0 sends after it.
void CheckIndependence(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  for (const int64_t count : {5, 50000}) {
    const Tensor sum = Empty({count});
    const Tensor a = Empty({count});
    const Tensor b = Empty({count});
    FillWith(sum, [&](int64_t) { return 1; });
    FillWith(a, [&](int64_t i) { return static_cast<double>(i % 100); });
    FillWith(b, [&](int64_t i) { return static_cast<double>(i % 100 + 1); });
    if (comm->rank() == 0) {
      const Work reduced = comm->AllReduce(sum);
      const Work first = comm->Recv(b, 1);  // comes after all else
      const Work second = comm->Send(a, 1);
      second.Wait();
      reduced.Wait();
      first.Wait();
      RequireValues(
          b, [](int64_t i) { return static_cast<double>(i % 100 + 1); }, "b");
    } else if (comm->rank() == 1) {
      const Tensor received = Empty({count});
      comm->Recv(received, 0).Wait();
      RequireValues(
          received, [](int64_t i) { return static_cast<double>(i % 100); }, "a");
      comm->AllReduce(sum).Wait();
      comm->Send(b, 0).Wait();
    } else {
      comm->AllReduce(sum).Wait();
    }
    RequireValues(
        sum, [&](int64_t) { return static_cast<double>(comm->size()); }, "sum");
  }
}

void CheckStress(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const int next = (comm->rank() + 1) % comm->size();
  const int last = (comm->rank() + comm->size() - 1) % comm->size();
  constexpr int64_t kCounts[] = {1, 7, 1024, 65537};
  const int64_t rounds = comm->backend() == "shm" ? 3000 : 500;
  for (int64_t k = 0; k < rounds; ++k) {
    const int64_t count = kCounts[k % 50 == 49 ? 3 : k % 3];
    const Tensor mine = Empty({count}, {DType::kInt32, {}});
    const Tensor theirs = Empty({count}, {DType::kInt32, {}});
    const auto mark = [k](int rank) { return static_cast<int32_t>(k * 8 + rank); };
    MutableData<int32_t>(mine)[0] = MutableData<int32_t>(mine)[count - 1] = mark(comm->rank());
    comm->Batch({Transfer::Send(mine, next, k), Transfer::Recv(theirs, last, k)}).Wait();
    const int32_t* data = Data<int32_t>(theirs);
    Require(data[0] == mark(last) && data[count - 1] == mark(last), absl::StrCat("round ", k));
  }
}

void CheckArguments(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const Tensor x = Empty({6});
  const auto refuses = [](const std::string& part, const std::function<void()>& call) {
    RequireError(absl::StatusCode::kInvalidArgument, {part}, call);
  };
  refuses("Send: the tensor is an undefined tensor", [&] { comm->Send(Tensor(), 0); });
  refuses("Recv: the tensor is an undefined tensor", [&] { comm->Recv(Tensor(), 0); });
  refuses("Send: peer 9 is not in [0, ", [&] { comm->Send(x, 9); });
  refuses("Recv: peer -1 is not in [0, ", [&] { comm->Recv(x, -1); });
  refuses("meta", [&] { comm->Send(Empty({2}, {{}, kMeta}), 0); });
  refuses("Recv: the timeout is 0", [&] { comm->Recv(x, 0, {.timeout = absl::ZeroDuration()}); });
  refuses("share memory", [&] { comm->Recv(StridedView({3, 2}, {0, 1}, 3), 0); });
  refuses("Recv(float32 x 6, from rank 0), transfer 1", [&] {
    comm->Batch({Transfer::Send(x, 0), Transfer::Recv(x, 0)});
  });
  // The first of a batch is not issued when the second is refused.
  refuses("peer 9", [&] { comm->Batch({Transfer::Send(x, 0), Transfer::Recv(x, 9)}); });
  comm->Barrier().Wait();
}

// ---- Faults ----

struct Mismatch {
  const char* name;
  int64_t send_count, recv_count;
  DType send_dtype, recv_dtype;
  int64_t send_tag, recv_tag;
  std::string send_text, recv_text;
};
const Mismatch kMismatches[] = {
    {"count", 5, 6, DType::kFloat32, DType::kFloat32, 0, 0, "Send(float32 x 5, to rank 1)",
     "Recv(float32 x 6, from rank 0)"},
    {"large", 50000, 5, DType::kFloat32, DType::kFloat32, 0, 0, "Send(float32 x 50000, to rank 1)",
     "Recv(float32 x 5, from rank 0)"},
    {"empty", 0, 1, DType::kFloat32, DType::kFloat32, 0, 0, "Send(float32 x 0, to rank 1)",
     "Recv(float32 x 1, from rank 0)"},
    {"dtype", 5, 5, DType::kFloat32, DType::kInt32, 0, 0, "Send(float32 x 5, to rank 1)",
     "Recv(int32 x 5, from rank 0)"},
    {"tag", 5, 5, DType::kFloat32, DType::kFloat32, 7, 8, "Send(float32 x 5, to rank 1, tag 7)",
     "Recv(float32 x 5, from rank 0, tag 8)"},
};

void Disagree(RankContext& context) {
  for (const Mismatch& m : kMismatches) {
    const auto comm = MakeTestGroup(context, absl::Seconds(60), m.name);
    comm->Barrier().Wait();
    const Stopwatch watch;
    const std::vector<std::string> parts = {
        "ranks disagree on message 0 from rank 0 to rank 1", m.send_text, m.recv_text,
        absl::StrCat("rank ", context.rank, " of group \"", m.name, "\"")};
    if (comm->rank() == 0) {
      RequireError(absl::StatusCode::kInvalidArgument, parts, [&] {
        comm->Send(Empty({m.send_count}, {m.send_dtype, {}}), 1, {.tag = m.send_tag}).Wait();
      });
    } else if (comm->rank() == 1) {
      RequireError(absl::StatusCode::kInvalidArgument, parts, [&] {
        comm->Recv(Empty({m.recv_count}, {m.recv_dtype, {}}), 0, {.tag = m.recv_tag}).Wait();
      });
    } else {  // hears of it in what it waits for
      RequireError(absl::StatusCode::kInvalidArgument, {m.send_text, m.recv_text},
                   [&] { comm->Recv(Empty({1}), 0).Wait(); });
    }
    Require(watch.ElapsedSeconds() < 10, "a disagreement must be reported at once");
    RequireError(absl::StatusCode::kInvalidArgument, {"error state", m.recv_text},
                 [&] { comm->Barrier().Wait(); });
  }
}

// Field report C-4.
void MissPeer(RankContext& context) {
  const auto a = MakeTestGroup(context, absl::Seconds(20), "a");
  const auto b = MakeTestGroup(context, absl::Seconds(20), "b");
  if (context.rank == 1) {
    context.store->Wait({"done/0"}, Deadline::After(absl::Seconds(30)));
    RequireError(absl::StatusCode::kDeadlineExceeded, {"rank 1 did not call Recv"},
                 [&] { a->Barrier().Wait(); });
    return;
  }
  const absl::Duration timeout = absl::Milliseconds(1000);
  const Stopwatch watch;
  const Work sent = a->Send(Empty({3}), 1, {.timeout = timeout});
  const Work received = b->Recv(Empty({60000}), 1, {.timeout = timeout});
  RequireError(absl::StatusCode::kDeadlineExceeded,
               {"Send(float32 x 3, to rank 1)", "rank 1 did not call Recv(float32 x 3, from rank 0",
                "within 1s", "message 0"},
               [&] { sent.Wait(); });
  RequireError(absl::StatusCode::kDeadlineExceeded,
               {"rank 1 did not call Send(float32 x 60000, to rank 0", "within 1s", "group \"b\""},
               [&] { received.Wait(); });
  const double seconds = watch.ElapsedSeconds();
  std::printf("a deadline of 1 s was reported after %.3f s\n", seconds);
  Require(seconds >= 0.9 && seconds < 10, "the deadline must be kept");
  RequireError(absl::StatusCode::kDeadlineExceeded, {"error state"},
               [&] { a->Send(Empty({3}), 1); });
  context.store->Set("done/0", "", kNever);
}

void LeaveEarly(RankContext& context) {
  auto comm = MakeTestGroup(context, absl::Seconds(60));
  comm->Barrier().Wait();
  if (context.rank == 1) {
    const Work pending = comm->Recv(Empty({9}), 0);
    comm.reset();
    RequireError(absl::StatusCode::kAborted, {"Recv(float32 x 9", "destroyed"},
                 [&] { pending.Wait(); });
    context.store->Wait({"done"}, Deadline::After(absl::Seconds(30)));
    return;
  }
  RequireError(absl::StatusCode::kUnavailable, {"rank 1 has left"},
               [&] { comm->Recv(Empty({5}), 1).Wait(); });
  context.store->Set("done", "", kNever);
}

void AbortWaiters(RankContext& context) {
  const auto comm = MakeTestGroup(context, absl::Seconds(60));
  if (context.rank == 1) {
    comm->Abort("the disk is full");
    return context.store->Wait({"done"}, Deadline::After(absl::Seconds(30)));
  }
  RequireError(absl::StatusCode::kAborted, {"aborted by rank 1", "the disk is full"},
               [&] { comm->Recv(Empty({5}), 1).Wait(); });
  context.store->Set("done", "", kNever);
}

void KillSender(RankContext& context) {
  const auto comm = MakeTestGroup(context, absl::Seconds(60));
  const Tensor large = Empty({1 << 20});
  if (context.rank == 1) {
    comm->Send(large, 0).Wait();
    comm->Send(large, 0);
    context.store->Set("killed_at", absl::StrCat(MonotonicNanoseconds()), kNever);
    kill(getpid(), SIGKILL);
  }
  RequireError(absl::StatusCode::kUnavailable, {"Recv(float32 x 1048576", "rank 1 has died"}, [&] {
    for (;;) comm->Recv(large, 1).Wait();
  });
  const double seconds = static_cast<double>(MonotonicNanoseconds() -
                                             std::stoll(context.store->Get("killed_at", kNever))) *
                         1e-9;
  std::printf("the death was noticed after %.3f s (promised: 1 s)\n", seconds);
  Require(seconds < 10, "the death was noticed too late");
}

LOCKSTEP_BACKEND_SUITE(DeathTest);

TEST_P(DeathTest, OfASender) {
  const SpawnResult result = Spawn(2, KillSender);
  EXPECT_EQ(result.ranks[1].signal, SIGKILL);
  EXPECT_TRUE(result.ranks[0].ok()) << result.ranks[0].ToString();
}

constexpr SpawnMode kThreads = SpawnMode::kThreads;

LOCKSTEP_BACKEND_SUITE(TransfersTest);

TEST_P(TransfersTest, Values) {
  for (const int ranks : {1, 2, 3}) ExpectAllOk(Spawn(ranks, CheckValues, {.mode = kThreads}));
  ExpectAllOk(Spawn(3, CheckValues, {.mode = kThreads, .argument = "staged"}));
  ExpectAllOk(Spawn(3, CheckValues));
  ExpectAllOk(Spawn(3, CheckValues, {.argument = "staged"}));
}

TEST_P(TransfersTest, Strided) {
  for (const int ranks : {1, 3}) ExpectAllOk(Spawn(ranks, CheckStrided, {.mode = kThreads}));
  ExpectAllOk(Spawn(2, CheckStrided));
}

TEST_P(TransfersTest, Order) {
  ExpectAllOk(Spawn(3, CheckOrder, {.mode = kThreads}));
  ExpectAllOk(Spawn(2, CheckOrder, {.mode = kThreads, .argument = "staged"}));
  ExpectAllOk(Spawn(2, CheckOrder));
}

TEST_P(TransfersTest, IndependentOfCollectives) {
  ExpectAllOk(Spawn(3, CheckIndependence, {.mode = kThreads}));
  ExpectAllOk(Spawn(3, CheckIndependence));
}

TEST_P(TransfersTest, Rings) {
  for (const int ranks : {2, 4}) ExpectAllOk(Spawn(ranks, CheckStress, {.mode = kThreads}));
  ExpectAllOk(Spawn(3, CheckStress));
}

TEST_P(TransfersTest, RefusesArguments) {
  ExpectAllOk(Spawn(2, CheckArguments, {.mode = kThreads}));
}

LOCKSTEP_BACKEND_SUITE(FaultTest);

TEST_P(FaultTest, BothEndsShowBothCalls) {
  for (const SpawnMode mode : Modes()) {
    ExpectAllOk(Spawn(3, Disagree, {.mode = mode}));
  }
}

TEST_P(FaultTest, MissingPeerIsNamedAtTheDeadline) {
  for (const SpawnMode mode : Modes()) {
    ExpectAllOk(Spawn(2, MissPeer, {.mode = mode}));
  }
}

TEST_P(FaultTest, LeavingAndAborting) {
  for (const SpawnMode mode : Modes()) {
    ExpectAllOk(Spawn(2, LeaveEarly, {.mode = mode}));
    ExpectAllOk(Spawn(2, AbortWaiters, {.mode = mode}));
  }
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
