// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// What is gloo's own: who sends what over TCP, and which options make which group.

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

// Compares what a call adds to traffic().
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
            absl::StrCat(what, " on rank ", comm_.rank(), ": ", got.messages, " messages, ",
                         got.bytes_received, " bytes received, ", got.bytes_sent, " sent; not ",
                         wanted.messages, ", ", wanted.bytes_received, ", ", wanted.bytes_sent));
  }

 private:
  Communicator& comm_;
  Traffic before_;
};

// Three members: the ranks, or the leaders of three hosts.
void CheckFlatTraffic(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const int me = comm->rank();
  const bool root = me == 0;
  TrafficCheck check(*comm);
  for (const int64_t count : {48, 48000}) {
    const bool small = count == 48;
    const int64_t n = count * 4;
    const int64_t slice = n / 3;
    const Tensor x = Empty({count});
    const Tensor y = Empty({3 * count});
    const Tensor z = Empty({3 * count});
    check.Expect("Barrier", comm->Barrier(), {1, 0, 0});
    check.Expect("AllReduce", comm->AllReduce(x),
                 small ? Traffic{3, 2 * n, 2 * n} : Traffic{5, 4 * slice, 4 * slice});
    check.Expect("Reduce", comm->Reduce(x),
                 small  ? Traffic{root ? 1 : 2, root ? 2 * n : 0, root ? 0 : n}
                 : root ? Traffic{3, 4 * slice, 2 * slice}
                        : Traffic{4, 2 * slice, 3 * slice});
    check.Expect("Broadcast", comm->Broadcast(x),
                 small  ? Traffic{root ? 3 : 1, root ? 0 : n, root ? 2 * n : 0}
                 : root ? Traffic{3, 0, n}
                        : Traffic{2, n, n / 2});
    check.Expect("AllGather", comm->AllGather(x, y), {3, 2 * n, 2 * n});
    check.Expect("Gather", comm->Gather(x, root ? y : Tensor()),
                 {root ? 1 : 2, root ? 2 * n : 0, root ? 0 : n});
    check.Expect("Scatter", comm->Scatter(root ? y : Tensor(), x),
                 {root ? 3 : 1, root ? 0 : n, root ? 2 * n : 0});
    check.Expect("ReduceScatter", comm->ReduceScatter(y, x), {3, 2 * n, 2 * n});
    check.Expect("AllToAll", comm->AllToAll(y, z), {3, 2 * n, 2 * n});
    const Tensor theirs = Empty({count});
    check.Expect(
        "ring",
        comm->Batch({Transfer::Send(x, (me + 1) % 3), Transfer::Recv(theirs, (me + 2) % 3)}),
        {3, n, n});
  }
}

TEST(TrafficTest, OneRankAHost) {
  ExpectAllOk(Spawn(3, CheckFlatTraffic,
                    {.mode = SpawnMode::kThreads, .argument = "backend=gloo hosts=own"}));
}

// Two hosts, of ranks 0, 3 and 1, 2: only ranks 0 and 1 send.
void CheckLeadersTraffic(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const bool leads = comm->rank() < 2;
  TrafficCheck check(*comm);
  const int64_t count = 48000;
  const int64_t n = count * 4;
  const Tensor x = Empty({count});
  const Tensor y = Empty({4 * count});
  check.Expect("AllReduce", comm->AllReduce(x), leads ? Traffic{3, n, n} : Traffic{1, 0, 0});
  check.Expect("AllGather", comm->AllGather(x, y),
               leads ? Traffic{2, 2 * n, 2 * n} : Traffic{1, 0, 0});
  check.Expect("ReduceScatter", comm->ReduceScatter(y, x),
               leads ? Traffic{3, 2 * n, 2 * n} : Traffic{1, 0, 0});
  check.Expect("Broadcast", comm->Broadcast(x, {.root = 3}),
               leads ? Traffic{comm->rank() == 0 ? 2 : 1, comm->rank() == 0 ? 0 : n,
                               comm->rank() == 0 ? n : 0}
                     : Traffic{1, 0, 0});
}

TEST(TrafficTest, LeadersOnly) {
  ExpectAllOk(Spawn(4, CheckLeadersTraffic,
                    {.mode = SpawnMode::kThreads, .argument = "backend=gloo hosts=0,1,1,0"}));
}

// Ranks of one host exchange nothing over TCP, unless they are told to.
void CheckOneHost(RankContext& context) {
  for (const HostGrouping grouping :
       {HostGrouping::kAutomatic, HostGrouping::kFlat, HostGrouping::kHierarchical}) {
    ProcessGroupOptions options =
        context.group_options(absl::StrCat("group ", static_cast<int>(grouping)));
    options.backend = "gloo";
    options.bind_address = "127.0.0.1";
    options.host_grouping = grouping;
    const auto comm = InitProcessGroup(options);
    const Tensor x = Empty({1000});
    FillWith(x, [&](int64_t i) { return static_cast<double>(i % 50 + context.rank); });
    comm->AllReduce(x).Wait();
    RequireValues(
        x, [](int64_t i) { return static_cast<double>(2 * (i % 50) + 1); }, "sum");
    const bool flat = grouping == HostGrouping::kFlat;
    Require(comm->traffic().bytes_sent == (flat ? 4000 : 0), "bytes over TCP");
  }
}

TEST(OptionsTest, OneHost) {
  ExpectAllOk(Spawn(2, CheckOneHost, {.mode = SpawnMode::kThreads}));
  ExpectAllOk(Spawn(2, CheckOneHost));
}

TEST(OptionsTest, AreRefusedWhereTheyMeanNothing) {
  ProcessGroupOptions options;
  options.backend = "gloo";
  options.peer_memory_access = PeerMemoryAccess::kStaged;
  RequireError(absl::StatusCode::kInvalidArgument, {"peer_memory_access", "shm"},
               [&] { InitProcessGroup(options); });
  for (const bool address : {true, false}) {
    ProcessGroupOptions of_shm;
    if (address) {
      of_shm.bind_address = "127.0.0.1";
    } else {
      of_shm.host_grouping = HostGrouping::kFlat;
    }
    RequireError(absl::StatusCode::kInvalidArgument, {"bind_address", "use the gloo backend"},
                 [&] { InitProcessGroup(of_shm); });
  }
}

void BindElsewhere(RankContext& context) {
  ProcessGroupOptions options = context.group_options();
  options.backend = "gloo";
  options.timeout = absl::Seconds(2);
  options.bind_address = "192.0.2.1";  // nobody's
  if (context.rank == 0) {
    RequireError(absl::StatusCode::kInvalidArgument, {"192.0.2.1"},
                 [&] { InitProcessGroup(options); });
  } else {
    RequireError(absl::StatusCode::kDeadlineExceeded, {}, [&] { InitProcessGroup(options); });
  }
}

TEST(OptionsTest, AnAddressOfAnotherHost) {
  ExpectAllOk(Spawn(2, BindElsewhere, {.mode = SpawnMode::kThreads}));
}

// A rank that stops without a word: nothing closes its connections.
void StopSilently(RankContext& context) {
  const auto comm = MakeTestGroup(context, absl::Seconds(60));
  const Tensor x = Empty({50000});
  comm->AllReduce(x).Wait();
  comm->Barrier().Wait();
  if (context.rank == 2) {
    context.store->Set("pid", absl::StrCat(getpid()), Deadline());
    raise(SIGSTOP);
    return;
  }
  const int pid = std::stoi(context.store->Get("pid", Deadline::After(absl::Seconds(30))));
  const Stopwatch watch;
  RequireError(absl::StatusCode::kUnavailable,
               {"rank 2 does not answer (no sign of life for 1s)", "collective 2"},
               [&] { comm->AllReduce(x).Wait(); });
  const double seconds = watch.ElapsedSeconds();
  std::printf("silence was noticed after %.3f s (promised: about 1 s)\n", seconds);
  Require(seconds < 10, "the silence was noticed too late");
  context.store->Set(absl::StrCat("seen/", context.rank), "", Deadline());
  if (context.rank != 0) return;
  context.store->Wait({"seen/1"}, Deadline::After(absl::Seconds(30)));
  kill(pid, SIGKILL);
}

TEST(SilenceTest, IsNoticedByItsLackOfSigns) {
  const SpawnResult result = Spawn(3, StopSilently, {.argument = "backend=gloo hosts=0,1,1"});
  EXPECT_EQ(result.ranks[2].signal, SIGKILL);
  EXPECT_TRUE(result.ranks[0].ok()) << result.ranks[0].ToString();
  EXPECT_TRUE(result.ranks[1].ok()) << result.ranks[1].ToString();
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
