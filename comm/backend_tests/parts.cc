// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Collectives to and from a root, all-to-all, and parts of differing sizes: large and empty
// tensors, strides, refused arguments, what ranks see that disagree or miss one, and bytes and
// messages a rank. programs_test compares values at random.

#include <cstdint>
#include <functional>
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
#include "lockstep/comm/serial_reference.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {
namespace {

constexpr Deadline kNever = Deadline();
constexpr DType kFloat = DType::kFloat32;

double At(int rank, int64_t i) { return Value(kFloat, rank, i); }

Tensor Filled(int rank, int64_t count) {
  const Tensor tensor = Empty({count});
  FillWith(tensor, [rank](int64_t i) { return At(rank, i); });
  return tensor;
}

// Several megabytes, in parts that no chunk of any path divides.
void CheckLarge(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const int me = comm->rank();
  const std::vector<int64_t> counts = {300007, 0, 700001};
  const std::vector<int64_t> begins = {0, 300007, 300007};
  constexpr int64_t kTotal = 1000008;
  const auto mine = static_cast<size_t>(me);
  const auto gathered = [&](int64_t i) { return i < 300007 ? At(0, i) : At(2, i - 300007); };

  const Tensor all = Empty({kTotal});
  comm->AllGather(Filled(me, counts[mine]), all, {.counts = counts}).Wait();
  RequireValues(all, gathered, "AllGather");
  const Tensor at_root = me == 1 ? Empty({kTotal}) : Tensor();
  comm->Gather(Filled(me, counts[mine]), at_root, {.root = 1, .counts = counts}).Wait();
  if (me == 1) RequireValues(at_root, gathered, "Gather");
  const Tensor part = Empty({counts[mine]});
  comm->Scatter(me == 2 ? Filled(2, kTotal) : Tensor(), part, {.root = 2, .counts = counts}).Wait();
  RequireValues(
      part, [&](int64_t i) { return At(2, begins[mine] + i); }, "Scatter");
  comm->ReduceScatter(Filled(me, kTotal), part, {.counts = counts}).Wait();
  RequireValues(
      part, [&](int64_t i) { return Reduced(ReduceOp::kSum, kFloat, 3, begins[mine] + i); },
      "ReduceScatter");
  const Tensor reduced = Filled(me, kTotal);
  comm->Reduce(reduced, {.root = 2}).Wait();
  RequireValues(
      reduced,
      [&](int64_t i) { return me == 2 ? Reduced(ReduceOp::kSum, kFloat, 3, i) : At(me, i); },
      "Reduce");
  // Everybody sends counts[p] elements to rank p.
  const Tensor exchanged = Empty({3 * counts[mine]});
  comm->AllToAll(Filled(me, kTotal), exchanged,
                 {.send_counts = counts, .receive_counts = std::vector<int64_t>(3, counts[mine])})
      .Wait();
  RequireValues(
      exchanged,
      [&](int64_t i) {
        return At(static_cast<int>(i / counts[mine]), begins[mine] + i % counts[mine]);
      },
      "AllToAll");
}

// Field report C-2: no elements at all, and at some ranks only.
void CheckEmpty(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const int64_t size = comm->size();
  const bool is_root = comm->rank() == 0;
  const Tensor empty = Empty({1, 0, 2});
  const Tensor whole = Empty({size, 1, 0, 2});
  const std::vector<int64_t> zeros(static_cast<size_t>(size), 0);
  comm->Reduce(empty).Wait();
  comm->Gather(empty, is_root ? whole : Tensor()).Wait();
  comm->Scatter(is_root ? whole : Tensor(), empty).Wait();
  comm->AllToAll(whole, whole).Wait();
  comm->AllToAll(whole, whole, {.send_counts = zeros, .receive_counts = zeros}).Wait();
  comm->AllGather(empty, whole, {.counts = zeros}).Wait();
  comm->ReduceScatter(whole, empty, {.counts = zeros}).Wait();
  Require(comm->sequence() == 7, "collectives without elements count in the sequence");
  std::vector<int64_t> last = zeros;
  last.back() = 3;
  const Tensor three = Empty({3});
  comm->AllGather(comm->rank() == size - 1 ? Filled(7, 3) : Empty({0}), three, {.counts = last})
      .Wait();
  RequireValues(
      three, [](int64_t i) { return At(7, i); }, "AllGather of one rank's");
}

// Field report C-1.
void CheckStrided(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const int size = comm->size();
  const int me = comm->rank();
  struct Layout {
    std::vector<int64_t> shape, strides;
    int64_t elements;
  };
  const Layout layouts[] = {{{3}, {2}, 7},                  // 0, 2, 4 of six
                            {{2}, {2}, 5},                  // column 0 of a 2x2
                            {{3, 2}, {1, 3}, 8},            // transposed
                            {{5, 3}, {7, 2}, 40},           // a chunk with gaps
                            {{100, 80}, {160, 2}, 16001}};  // beyond the inline size
  for (const Layout& layout : layouts) {
    const int64_t count = NumElements(layout.shape);
    const auto view = [&] { return StridedView(layout.shape, layout.strides, layout.elements); };
    const Tensor in = view();
    FillWith(in, [&](int64_t i) { return At(me, i); });
    const Tensor out = view();
    const Tensor whole = Empty({size * count});
    comm->Gather(in, me == 0 ? whole : Tensor()).Wait();
    if (me == 0) {
      RequireValues(
          whole, [&](int64_t i) { return At(static_cast<int>(i / count), i % count); }, "Gather");
    }
    comm->Scatter(me == 0 ? whole : Tensor(), out).Wait();
    RequireValues(
        out, [&](int64_t i) { return At(me, i); }, "Scatter");
    RequireGapsUntouched(out, layout.elements);
    comm->Reduce(in, {.root = size - 1, .op = ReduceOp::kMax}).Wait();
    RequireValues(
        in,
        [&](int64_t i) {
          return me == size - 1 ? Reduced(ReduceOp::kMax, kFloat, size, i) : At(me, i);
        },
        "Reduce");
    RequireGapsUntouched(in, layout.elements);
  }
  // Two columns of [size, 3]: part r is row r of the view.
  const Tensor in = StridedView({size, 2}, {3, 1}, 3 * size + 1);
  const Tensor out = StridedView({size, 2}, {1, size}, 2 * size + 1);
  FillWith(in, [&](int64_t i) { return At(me, i); });
  comm->AllToAll(in, out).Wait();
  RequireValues(
      out, [&](int64_t i) { return At(static_cast<int>(i / 2), me * 2 + i % 2); }, "AllToAll");
}

void CheckArguments(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const bool is_root = comm->rank() == 0;
  const Tensor x = Empty({6});
  const Tensor i = Empty({6}, {DType::kInt32, {}});
  const Tensor twelve = Empty({12});
  const auto refuses = [](const std::string& part, const std::function<void()>& call) {
    RequireError(absl::StatusCode::kInvalidArgument, {part}, call);
  };
  refuses("Reduce: root 9 is not in [0, 2)", [&] { comm->Reduce(x, {.root = 9}); });
  refuses("Gather: root -1", [&] { comm->Gather(x, twelve, {.root = -1}); });
  refuses("Scatter: root 2", [&] { comm->Scatter(twelve, x, {.root = 2}); });
  refuses("the output is an undefined tensor",
          [&] { comm->Reduce(x, Tensor(), {.root = comm->rank()}); });
  refuses("only the root, rank", [&] { comm->Reduce(x, twelve, {.root = 1 - comm->rank()}); });
  refuses("only the root, rank", [&] { comm->Gather(x, twelve, {.root = 1 - comm->rank()}); });
  refuses("only the root, rank", [&] { comm->Scatter(twelve, x, {.root = 1 - comm->rank()}); });
  refuses("counts has 3 numbers for 2 ranks", [&] {
    comm->AllGather(x, twelve, {.counts = {6, 6, 0}});
  });
  refuses("counts has -1", [&] { comm->AllGather(x, twelve, {.counts = {-1, 13}}); });
  refuses("counts [6, 5] add up to 11, not to the 12 elements", [&] {
    comm->AllGather(x, twelve, {.counts = {6, 5}});
  });
  refuses("has 6 elements, but counts say ", [&] {
    comm->ReduceScatter(twelve, x, {.counts = {is_root ? 5 : 7, is_root ? 7 : 5}});
  });
  refuses("receive_counts has 0 numbers", [&] {
    comm->AllToAll(x, Empty({6}), {.send_counts = {3, 3}});
  });
  refuses("7 elements cannot be cut into 2", [&] { comm->AllToAll(Empty({7}), Empty({7})); });
  refuses("AllToAll: input and output overlap; they must share no memory",
          [&] { comm->AllToAll(x, x); });
  refuses("input is float32 and output is int32", [&] { comm->AllToAll(x, i); });
  refuses("the average of int32", [&] { comm->Reduce(i, {.op = ReduceOp::kAverage}); });
  refuses("a pre-multiplied sum of int32",
          [&] { comm->AllReduce(i, {.op = ReduceOp::kPreMultipliedSum}); });
  refuses("a factor of 2 for the sum", [&] { comm->AllReduce(x, {.factor = 2}); });
  refuses("may be part", [&] {
    const Tensor part = FromStorage(twelve.storage(), ShapeSpan({5}), kFloat, is_root ? 1 : 6);
    comm->AllGather(part, twelve, {.counts = {is_root ? 5 : 7, is_root ? 7 : 5}});
  });
  Require(comm->sequence() == 0, "a refused call must not take a number");
  comm->Barrier().Wait();
}

// ---- Faults ----

using Call = std::function<Work(Communicator&)>;
struct Mismatch {
  const char* name;
  Call usual;  // ranks 0 and 1 of 3
  Call odd;    // rank 2
  std::string usual_text, odd_text;
};

Tensor AtRoot(Communicator& c, int root, int64_t count) {
  return c.rank() == root ? Empty({count}) : Tensor();
}
Work UnevenGather(Communicator& c, std::vector<int64_t> counts) {
  const int64_t mine = counts[static_cast<size_t>(c.rank())];
  return c.AllGather(Empty({mine}), Empty({9}), {.counts = std::move(counts)});
}
Work UnevenScatter(Communicator& c, std::vector<int64_t> counts) {
  const int64_t mine = counts[static_cast<size_t>(c.rank())];
  return c.ReduceScatter(Empty({9}), Empty({mine}), {.counts = std::move(counts)});
}
Work Exchange(Communicator& c, std::vector<int64_t> sent, std::vector<int64_t> received) {
  const Tensor in = Empty({sent[0] + sent[1] + sent[2]});
  const Tensor out = Empty({received[0] + received[1] + received[2]});
  return c.AllToAll(in, out, {.send_counts = sent, .receive_counts = received});
}

std::vector<Mismatch> Mismatches() {
  using C = Communicator&;
  return {
      {"reduce_root", [](C c) { return c.Reduce(Empty({5}), {.root = 0}); },
       [](C c) { return c.Reduce(Empty({5}), {.root = 1}); }, "Reduce(float32 x 5, sum, root 0)",
       "Reduce(float32 x 5, sum, root 1)"},
      {"reduce_op", [](C c) { return c.Reduce(Empty({5})); },
       [](C c) { return c.Reduce(Empty({5}), {.op = ReduceOp::kMin}); },
       "Reduce(float32 x 5, sum, root 0)", "Reduce(float32 x 5, min, root 0)"},
      {"factor",
       [](C c) {
         return c.AllReduce(Empty({5}), {.op = ReduceOp::kPreMultipliedSum, .factor = 2});
       },
       [](C c) {
         return c.AllReduce(Empty({5}), {.op = ReduceOp::kPreMultipliedSum, .factor = 3});
       },
       "pre-multiplied sum by 2", "pre-multiplied sum by 3"},
      {"gather", [](C c) { return c.Gather(Empty({5}), AtRoot(c, 0, 15)); },
       [](C c) { return c.Gather(Empty({6}), AtRoot(c, 0, 18)); }, "Gather(float32 x 5, root 0)",
       "Gather(float32 x 6, root 0)"},
      {"scatter", [](C c) { return c.Scatter(AtRoot(c, 0, 150000), Empty({50000})); },
       [](C c) { return c.Scatter(AtRoot(c, 0, 15), Empty({5})); },
       "Scatter(float32 x 50000, root 0)", "Scatter(float32 x 5, root 0)"},
      {"alltoall", [](C c) { return c.AllToAll(Empty({6}), Empty({6})); },
       [](C c) { return c.AllToAll(Empty({9}), Empty({9})); }, "AllToAll(float32 x 2)",
       "AllToAll(float32 x 3)"},
      {"uneven_gather",
       [](C c) {
         return UnevenGather(c, {2, 3, 4});
       },
       [](C c) {
         return UnevenGather(c, {3, 2, 4});
       },
       "AllGather(float32 x [2, 3, 4])", "AllGather(float32 x [3, 2, 4])"},
      {"uneven_or_not",
       [](C c) {
         return UnevenGather(c, {3, 2, 4});
       },
       [](C c) { return c.AllGather(Empty({3}), Empty({9})); }, "AllGather(float32 x [3, 2, 4])",
       "AllGather(float32 x 3)"},
      {"uneven_scatter",
       [](C c) {
         return UnevenScatter(c, {2, 3, 4});
       },
       [](C c) {
         return UnevenScatter(c, {3, 2, 4});
       },
       "ReduceScatter(float32 x [2, 3, 4], sum)", "ReduceScatter(float32 x [3, 2, 4], sum)"},
      // Rank 2 expects 4 elements of rank 1, which sends 1; rank 0 fits both.
      {"matrix",
       [](C c) {
         return Exchange(c, {1, 1, 1}, {1, 1, 1});
       },
       [](C c) {
         return Exchange(c, {1, 1, 1}, {1, 4, 1});
       },
       "rank 1 called AllToAll(float32 x [1, 1, 1], receives [1, 1, 1])",
       "rank 2 called AllToAll(float32 x [1, 1, 1], receives [1, 4, 1])"},
  };
}

void Disagree(RankContext& context) {
  for (const Mismatch& mismatch : Mismatches()) {
    const auto comm = MakeTestGroup(context, absl::Seconds(60), mismatch.name);
    comm->Barrier().Wait();
    const Stopwatch watch;
    RequireError(absl::StatusCode::kInvalidArgument,
                 {"ranks disagree on collective 1", mismatch.usual_text, mismatch.odd_text},
                 [&] { (context.rank == 2 ? mismatch.odd : mismatch.usual)(*comm).Wait(); });
    Require(watch.ElapsedSeconds() < 10, "a disagreement must be reported at once");
    RequireError(absl::StatusCode::kInvalidArgument, {"error state", mismatch.odd_text},
                 [&] { comm->Barrier().Wait(); });
  }
}

// Field report C-4, for each call: rank 2 makes the group and never calls.
void MissRank(RankContext& context) {
  const std::vector<Mismatch> calls = Mismatches();
  std::vector<std::shared_ptr<Communicator>> groups;
  for (const Mismatch& call : calls) {
    groups.push_back(MakeTestGroup(context, absl::Milliseconds(1500), call.name));
  }
  const std::vector<std::string> done = {"done/0", "done/1"};
  if (context.rank == 2) return context.store->Wait(done, Deadline::After(absl::Seconds(60)));
  std::vector<Work> works;
  for (size_t k = 0; k < calls.size(); ++k) works.push_back(calls[k].usual(*groups[k]));
  const Stopwatch watch;
  for (size_t k = 0; k < calls.size(); ++k) {
    RequireError(absl::StatusCode::kDeadlineExceeded,
                 {"rank 2", "did not call", "within 1.5s", "collective 0"},
                 [&] { works[k].Wait(); });
    RequireError(absl::StatusCode::kDeadlineExceeded, {"error state"},
                 [&] { groups[k]->Barrier(); });
  }
  Require(watch.ElapsedSeconds() < 15, "the deadline must be kept");
  context.store->Set(done[static_cast<size_t>(context.rank)], "", kNever);
}

// ---- Bytes and messages ----

void CheckTraffic(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const int me = comm->rank();
  const bool is_root = me == 0;
  Traffic before = comm->traffic();
  const auto expect = [&](const char* what, const Work& work, Traffic wanted) {
    work.Wait();
    const Traffic now = comm->traffic();
    const Traffic got = {now.messages - before.messages, now.bytes_received - before.bytes_received,
                         now.bytes_sent - before.bytes_sent};
    before = now;
    Require(got.messages == wanted.messages && got.bytes_received == wanted.bytes_received &&
                got.bytes_sent == wanted.bytes_sent,
            absl::StrCat(what, " on rank ", me, ": ", got.messages, " messages, ",
                         got.bytes_received, " bytes received, ", got.bytes_sent, " sent; not ",
                         wanted.messages, ", ", wanted.bytes_received, ", ", wanted.bytes_sent));
  };
  // n bytes a rank or part, in three ranks; small (in the control block) and large.
  for (const int64_t count : {48, 48000}) {
    const bool small = count == 48;
    const int64_t n = count * 4;
    const int64_t whole = 3 * n;
    const bool whole_small = whole <= 16 << 10;
    const int64_t steps = small ? 1 : 2;
    const int64_t slice = small ? n : n / 3;
    const Tensor x = Empty({count});
    const Tensor y = Empty({3 * count});
    const Tensor z = Empty({3 * count});
    expect("Barrier", comm->Barrier(), {1, 0, 0});
    expect("AllReduce", comm->AllReduce(x), {steps, 2 * slice, small ? 0 : 2 * slice});
    expect("Reduce", comm->Reduce(x),
           {steps, small && !is_root ? 0 : 2 * slice, small || is_root ? 0 : slice});
    expect("Broadcast", comm->Broadcast(x), {steps, is_root ? 0 : n, 0});
    expect("AllGather", comm->AllGather(x, y), {steps, 2 * n, 0});
    expect("Gather", comm->Gather(x, is_root ? y : Tensor()), {steps, is_root ? 2 * n : 0, 0});
    expect("Scatter", comm->Scatter(is_root ? y : Tensor(), x),
           {whole_small ? 1 : 2, is_root ? 0 : n, 0});
    expect("ReduceScatter", comm->ReduceScatter(y, x), {whole_small ? 1 : 2, 2 * n, 0});
    expect("AllToAll", comm->AllToAll(y, z), {whole_small ? 1 : 2, 2 * n, 0});
    comm->Barrier().Wait();
    before = comm->traffic();
    expect(
        "ring",
        comm->Batch({Transfer::Send(x, (me + 1) % 3),
                     Transfer::Recv(FromStorage(z.storage(), ShapeSpan({int64_t{count}}), kFloat),
                                    (me + 2) % 3)}),
        {1, n, 0});
  }
}

constexpr SpawnMode kThreads = SpawnMode::kThreads;

LOCKSTEP_BACKEND_SUITE(PartsTest);

TEST_P(PartsTest, Large) {
  ExpectAllOk(Spawn(3, CheckLarge, {.mode = kThreads}));
  ExpectAllOk(Spawn(3, CheckLarge, {.mode = kThreads, .argument = "staged"}));
  ExpectAllOk(Spawn(3, CheckLarge));
  ExpectAllOk(Spawn(3, CheckLarge, {.argument = "staged"}));
}

TEST_P(PartsTest, Empty) {
  for (const int ranks : {1, 2, 4}) ExpectAllOk(Spawn(ranks, CheckEmpty, {.mode = kThreads}));
}

TEST_P(PartsTest, Strided) {
  for (const int ranks : {1, 2, 3}) ExpectAllOk(Spawn(ranks, CheckStrided, {.mode = kThreads}));
  ExpectAllOk(Spawn(2, CheckStrided));
}

TEST_P(PartsTest, RefusesArguments) { ExpectAllOk(Spawn(2, CheckArguments, {.mode = kThreads})); }

TEST_P(PartsTest, EveryRankShowsBothCalls) {
  for (const SpawnMode mode : Modes()) ExpectAllOk(Spawn(3, Disagree, {.mode = mode}));
}

TEST_P(PartsTest, MissingRankIsNamed) { ExpectAllOk(Spawn(3, MissRank, {.mode = kThreads})); }

// Each backend has formulas of its own: these are shm's.
TEST_P(PartsTest, BytesAndMessages) {
  if (!IsShm()) GTEST_SKIP();
  ExpectAllOk(Spawn(3, CheckTraffic, {.mode = kThreads}));
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
