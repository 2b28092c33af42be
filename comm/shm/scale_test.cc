// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Many ranks on one machine: values of every call at 64 ranks, and messages and bytes as functions
// of the number of ranks. What such a group takes of memory is in scale_memory_test.cc.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
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

constexpr int kRanks = 64;
constexpr DType kFloat = DType::kFloat32;
// Without elements, one, odd, and more than travels in the control block (16 KiB).
constexpr int64_t kCounts[] = {0, 1, 37, 4999};

float ValueOf(int rank, int64_t i) { return static_cast<float>(Value(kFloat, rank, i)); }

// Sums over all ranks, made once for all of them.
std::vector<float> SumsOf(int64_t count) {
  std::vector<float> sums;
  for (int64_t i = 0; i < count; ++i) {
    sums.push_back(static_cast<float>(Reduced(ReduceOp::kSum, kFloat, kRanks, i)));
  }
  return sums;
}

Tensor Inputs(int rank, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(ValueOf(rank, i));
  return FromVector<float>(values, {count});
}

Tensor Zeroes(int64_t count) {
  return FromVector<float>(std::vector<float>(static_cast<size_t>(count)), {count});
}

template <typename Expected>
void RequireAll(const Tensor& tensor, const std::string& what, const Expected& expected) {
  const std::vector<float> values = tensor.ToVector<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const float wanted = expected(static_cast<int64_t>(i));
    if (values[i] == wanted) continue;
    Require(false, absl::StrCat(what, ": element ", i, " is ", values[i], ", not ", wanted));
  }
}

class Rank {
 public:
  Rank(Communicator& comm, const std::vector<float>& sums)
      : comm_(comm), me_(comm.rank()), sums_(sums) {}

  void CheckAll(int64_t count) {
    count_ = count;
    CheckReductions();
    CheckFromRoot();
    CheckParts();
    CheckAllToAll();
    CheckRing();
    comm_.Barrier().Wait();
  }

  // Every rank sends to every other; each pair's numbers are its own.
  void CheckAllPairs() {
    std::vector<Transfer> transfers;
    std::vector<Tensor> received;
    for (int peer = 0; peer < kRanks; ++peer) {
      const float mine = static_cast<float>(me_ * 1000 + peer);
      transfers.push_back(Transfer::Send(FromVector<float>({mine, -mine}, {2}), peer));
      received.push_back(Empty({2}));
      transfers.push_back(Transfer::Recv(received.back(), peer));
    }
    comm_.Batch(transfers).Wait();
    for (int peer = 0; peer < kRanks; ++peer) {
      const float theirs = static_cast<float>(peer * 1000 + me_);
      RequireAll(received[static_cast<size_t>(peer)], absl::StrCat("from ", peer),
                 [theirs](int64_t i) { return i == 0 ? theirs : -theirs; });
    }
  }

 private:
  std::string Text(const char* call) const {
    return absl::StrCat(call, " of ", count_, " on rank ", me_);
  }
  float Sum(int64_t i) const { return sums_[static_cast<size_t>(i)]; }
  // Of what all ranks have in turn.
  float Gathered(int64_t i) const { return ValueOf(static_cast<int>(i / count_), i % count_); }

  void CheckReductions() {
    const Tensor x = Inputs(me_, count_);
    comm_.AllReduce(x).Wait();
    RequireAll(x, Text("AllReduce"), [this](int64_t i) { return Sum(i); });
    const int root = 61;
    const Tensor y = Inputs(me_, count_);
    comm_.Reduce(y, {.root = root}).Wait();
    if (me_ == root) RequireAll(y, Text("Reduce"), [this](int64_t i) { return Sum(i); });
    const Tensor in = Inputs(me_, count_ * kRanks);
    const Tensor part = Empty({count_});
    comm_.ReduceScatter(in, part).Wait();
    RequireAll(part, Text("ReduceScatter"), [this](int64_t i) { return Sum(me_ * count_ + i); });
  }

  void CheckFromRoot() {
    for (const int root : {0, 33}) {
      const Tensor x = Inputs(me_, count_);
      comm_.Broadcast(x, {.root = root}).Wait();
      RequireAll(x, Text("Broadcast"), [root](int64_t i) { return ValueOf(root, i); });
      const Tensor all = me_ == root ? Inputs(root, count_ * kRanks) : Tensor();
      comm_.Scatter(all, x, {.root = root}).Wait();
      RequireAll(x, Text("Scatter"),
                 [this, root](int64_t i) { return ValueOf(root, me_ * count_ + i); });
    }
  }

  void CheckParts() {
    const Tensor x = Inputs(me_, count_);
    const Tensor all = Empty({count_ * kRanks});
    comm_.AllGather(x, all).Wait();
    RequireAll(all, Text("AllGather"), [this](int64_t i) { return Gathered(i); });
    const int root = 17;
    const Tensor out = me_ == root ? Empty({count_ * kRanks}) : Tensor();
    comm_.Gather(x, out, {.root = root}).Wait();
    if (me_ == root) RequireAll(out, Text("Gather"), [this](int64_t i) { return Gathered(i); });
  }

  void CheckAllToAll() {
    const Tensor in = Inputs(me_, count_ * kRanks);
    const Tensor out = Empty({count_ * kRanks});
    comm_.AllToAll(in, out).Wait();
    RequireAll(out, Text("AllToAll"), [this](int64_t i) {
      return ValueOf(static_cast<int>(i / count_), me_ * count_ + i % count_);
    });
  }

  void CheckRing() {
    const Tensor out = Empty({count_});
    const int from = (me_ + kRanks - 5) % kRanks;
    comm_
        .Batch({Transfer::Send(Inputs(me_, count_), (me_ + 5) % kRanks), Transfer::Recv(out, from)})
        .Wait();
    RequireAll(out, Text("Recv"), [from](int64_t i) { return ValueOf(from, i); });
  }

  Communicator& comm_;
  const int me_;
  const std::vector<float>& sums_;
  int64_t count_ = 0;
};

TEST(ScaleTest, EveryCallAtSixtyFourRanks) {
  const std::vector<float> sums = SumsOf(kCounts[std::size(kCounts) - 1] * kRanks);
  for (const char* argument : {"", "staged"}) {
    const Stopwatch watch;
    ExpectAllOk(SpawnThreads(kRanks,
                             [&](RankContext& context) {
                               const auto comm = MakeTestGroup(context);
                               Rank rank(*comm, sums);
                               for (const int64_t count : kCounts) rank.CheckAll(count);
                               rank.CheckAllPairs();
                               comm->Barrier().Wait();
                             },
                             {.argument = argument}));
    std::printf("all calls at %d ranks%s%s: %.1f s\n", kRanks, *argument ? ", " : "", argument,
                watch.ElapsedSeconds());
  }
}

// ---- Messages and bytes ----

// Checks what each call of one rank adds to its traffic.
class TrafficCheck {
 public:
  explicit TrafficCheck(Communicator& comm) : comm_(comm), before_(comm.traffic()) {}

  void Expect(const char* what, const Work& work, Traffic wanted) {
    work.Wait();
    const Traffic now = comm_.traffic();
    const Traffic got = {now.messages - before_.messages,
                         now.bytes_received - before_.bytes_received,
                         now.bytes_sent - before_.bytes_sent};
    before_ = now;
    Require(got.messages == wanted.messages && got.bytes_received == wanted.bytes_received &&
                got.bytes_sent == wanted.bytes_sent,
            absl::StrCat(what, " on rank ", comm_.rank(), " of ", comm_.size(), ": ", got.messages,
                         " messages, ", got.bytes_received, " bytes received, ", got.bytes_sent,
                         " sent; not ", wanted.messages, ", ", wanted.bytes_received, ", ",
                         wanted.bytes_sent));
  }

 private:
  Communicator& comm_;
  Traffic before_;
};

// The table of docs/comm.md, for a tensor (or part) of `count` floats.
void CheckTraffic(Communicator& comm, int64_t count) {
  TrafficCheck check(comm);
  const int64_t ranks = comm.size();
  const int64_t peers = ranks - 1;
  const bool root = comm.rank() == 0;
  const int64_t n = count * 4;
  const bool small = n <= 16 << 10;
  const bool whole_small = ranks * n <= 16 << 10;
  const int64_t messages = small ? 1 : 2;
  const int64_t whole_messages = whole_small ? 1 : 2;
  const int64_t slice = small ? n : n / ranks;
  const int64_t written = small ? 0 : slice;
  const Tensor x = Zeroes(count);
  const Tensor y = Zeroes(ranks * count);
  const Tensor z = Zeroes(ranks * count);
  check.Expect("Barrier", comm.Barrier(), {1, 0, 0});
  check.Expect("AllReduce", comm.AllReduce(x), {messages, peers * slice, peers * written});
  check.Expect("Reduce", comm.Reduce(x),
               {messages, small && !root ? 0 : peers * slice, root ? 0 : written});
  check.Expect("Broadcast", comm.Broadcast(x), {messages, root ? 0 : n, 0});
  check.Expect("AllGather", comm.AllGather(x, y), {messages, peers * n, 0});
  check.Expect("Gather", comm.Gather(x, root ? y : Tensor()), {messages, root ? peers * n : 0, 0});
  check.Expect("Scatter", comm.Scatter(root ? y : Tensor(), x), {whole_messages, root ? 0 : n, 0});
  check.Expect("ReduceScatter", comm.ReduceScatter(y, x), {whole_messages, peers * n, 0});
  check.Expect("AllToAll", comm.AllToAll(y, z), {whole_messages, peers * n, 0});
  const int next = (comm.rank() + 1) % comm.size();
  const int last = (comm.rank() + comm.size() - 1) % comm.size();
  check.Expect("a ring", comm.Batch({Transfer::Send(x, next), Transfer::Recv(Zeroes(count), last)}),
               {1, n, 0});
}

TEST(ScaleTest, MessagesDoNotGrowWithTheRanksAndBytesAsTheTableSays) {
  for (const int ranks : {2, 3, 5, 8, 16, 33, 64}) {
    ExpectAllOk(SpawnThreads(ranks, [ranks](RankContext& context) {
      const auto comm = MakeTestGroup(context);
      CheckTraffic(*comm, 48);
      // Whole cache lines in each slice.
      CheckTraffic(*comm, int64_t{16} * ranks * (1 + 5000 / (16 * ranks)));
    }));
  }
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
