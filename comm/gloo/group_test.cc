// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// What is gloo's own: who sends what over TCP, and which options make which group.

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
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

// The table of docs/comm.md, for W members: the ranks, or the leaders of W hosts.
void CheckFlatTraffic(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const int me = comm->rank();
  const int64_t w = comm->size();
  const bool root = me == 0;
  TrafficCheck check(*comm);
  for (const bool small : {true, false}) {
    // Slices of a reduction or broadcast are whole 64 bytes: the same for all, of W and of W - 1.
    const int64_t slices = 16 * w * (w - 1);
    const int64_t count = small ? 48 : slices * (8192 / slices + 1);
    const int64_t n = count * 4;
    const int64_t slice = n / w;
    const int64_t others = w - 1;
    const bool direct = small || w == 2;
    const Tensor x = Empty({count});
    // Where each rank has a part: of this size.
    const int64_t part = small ? 48 : 5000;
    const int64_t p = part * 4;
    const Tensor mine = Empty({part});
    const Tensor y = Empty({w * part});
    const Tensor z = Empty({w * part});
    const Traffic to_all = {w, others * n, others * n};
    const Traffic parts_to_all = {w, others * p, others * p};
    check.Expect("Barrier", comm->Barrier(), {1, 0, 0});
    check.Expect("AllReduce", comm->AllReduce(x),
                 small ? to_all : Traffic{2 * w - 1, 2 * others * slice, 2 * others * slice});
    check.Expect("Reduce", comm->Reduce(x),
                 direct ? Traffic{root ? 1 : 2, root ? others * n : 0, root ? 0 : n}
                 : root ? Traffic{w, 2 * others * slice, others * slice}
                        : Traffic{w + 1, others * slice, n});
    check.Expect("Broadcast", comm->Broadcast(x),
                 direct ? Traffic{root ? w : 1, root ? 0 : n, root ? others * n : 0}
                 : root ? Traffic{w, 0, n}
                        : Traffic{w - 1, n, (w - 2) * n / (w - 1)});
    check.Expect("AllGather", comm->AllGather(mine, y), parts_to_all);
    check.Expect("Gather", comm->Gather(mine, root ? y : Tensor()),
                 {root ? 1 : 2, root ? others * p : 0, root ? 0 : p});
    check.Expect("Scatter", comm->Scatter(root ? y : Tensor(), mine),
                 {root ? w : 1, root ? 0 : p, root ? others * p : 0});
    check.Expect("ReduceScatter", comm->ReduceScatter(y, mine), parts_to_all);
    check.Expect("AllToAll", comm->AllToAll(y, z), parts_to_all);
    const Tensor theirs = Empty({count});
    const int size = comm->size();
    check.Expect("ring",
                 comm->Batch({Transfer::Send(x, (me + 1) % size),
                              Transfer::Recv(theirs, (me + size - 1) % size)}),
                 {3, n, n});
  }
}

TEST(TrafficTest, IsAFunctionOfTheRanks) {
  for (const int ranks : {2, 3, 5, 8, 16, 33, 64}) {
    ExpectAllOk(Spawn(ranks, CheckFlatTraffic,
                      {.mode = SpawnMode::kThreads, .argument = "backend=gloo hosts=own"}));
  }
}

// Hosts of several ranks: leaders are ranks 0 to H - 1, and exchange what the table says of H
// members, of parts of a host. The others have one message a call and no bytes.
void CheckLeadersTraffic(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  // As many ranks on each.
  const auto hosts =
      static_cast<int64_t>(std::stoi(context.argument.substr(context.argument.rfind(' ') + 1)));
  const int64_t within = comm->size() / hosts;
  const bool leads = comm->rank() < hosts;
  const bool root = comm->rank() == 0;
  TrafficCheck check(*comm);
  const int64_t slices = 16 * hosts * (hosts - 1);
  const int64_t count = slices * (8192 / slices + 1);
  const int64_t n = count * 4;
  const int64_t part = 5000;
  const int64_t p = part * 4;
  const int64_t others = hosts - 1;
  const Tensor x = Empty({count});
  const Tensor mine = Empty({part});
  const Tensor y = Empty({comm->size() * part});
  const Traffic follower = {1, 0, 0};
  const int64_t sums = 2 * others * (n / hosts);
  check.Expect("Barrier", comm->Barrier(), follower);
  check.Expect("AllReduce", comm->AllReduce(x),
               leads ? Traffic{2 * hosts - 1, sums, sums} : follower);
  const Traffic to_all = {hosts, others * within * p, others * within * p};
  check.Expect("AllGather", comm->AllGather(mine, y), leads ? to_all : follower);
  check.Expect("ReduceScatter", comm->ReduceScatter(y, mine), leads ? to_all : follower);
  const Traffic spread = hosts == 2 ? Traffic{root ? 2 : 1, root ? 0 : n, root ? n : 0}
                         : root     ? Traffic{hosts, 0, n}
                                    : Traffic{hosts - 1, n, (hosts - 2) * n / (hosts - 1)};
  check.Expect("Broadcast", comm->Broadcast(x), leads ? spread : follower);
  // From a rank that is not its host's leader.
  if (hosts == 2) {
    check.Expect("Broadcast", comm->Broadcast(x, {.root = 3}), leads ? spread : follower);
  }
}

TEST(TrafficTest, LeadersOnly) {
  for (const auto& [ranks, hosts, where] : {std::tuple<int, int, const char*>{4, 2, "0,1,1,0"},
                                            {12, 4, "0,1,2,3,3,0,1,2,2,3,0,1"},
                                            {64, 8, "0,1,2,3,4,5,6,7"}}) {
    ExpectAllOk(Spawn(ranks, CheckLeadersTraffic,
                      {.mode = SpawnMode::kThreads,
                       .argument = absl::StrCat("backend=gloo hosts=", where, " ", hosts)}));
  }
}

// More chunks to a part than are received at a time.
void ReduceManyChunks(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const int64_t count = 5 * comm->size() * (512 << 10) / 4 + 12345;
  const auto mine = [](int rank, int64_t i) { return static_cast<double>(i % 1009 + 5 * rank); };
  double ranks = 0;
  for (int rank = 0; rank < comm->size(); ++rank) ranks += 5 * rank;
  const auto sum = [&](int64_t i) {
    return static_cast<double>(comm->size()) * static_cast<double>(i % 1009) + ranks;
  };
  const Tensor x = Empty({count});
  const Tensor y = Empty({count});
  FillWith(x, [&](int64_t i) { return mine(comm->rank(), i); });
  comm->AllReduce(x, y).Wait();
  RequireValues(y, sum, "AllReduce");
  comm->Reduce(x, comm->rank() == 1 ? x : Tensor(), {.root = 1}).Wait();
  if (comm->rank() == 1) RequireValues(x, sum, "Reduce");
  comm->Broadcast(x, {.root = 1}).Wait();
  RequireValues(x, sum, "Broadcast");
}

TEST(ChunkTest, AreReducedInTurn) {
  for (const int ranks : {2, 3}) {
    ExpectAllOk(Spawn(ranks, ReduceManyChunks,
                      {.mode = SpawnMode::kThreads, .argument = "backend=gloo hosts=own"}));
  }
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

void GroupDifferently(RankContext& context) {
  ProcessGroupOptions options = context.group_options();
  options.backend = "gloo";
  if (context.rank == 1) options.host_grouping = HostGrouping::kFlat;
  RequireError(absl::StatusCode::kInvalidArgument,
               {"rank 0 has set host_grouping to automatic, and rank 1 to flat"},
               [&] { InitProcessGroup(options); });
}

TEST(OptionsTest, MustBeTheSameOnAllRanks) {
  ExpectAllOk(Spawn(2, GroupDifferently, {.mode = SpawnMode::kThreads}));
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
               {"rank 2 does not answer (no sign of life for 800ms)", "collective 2"},
               [&] { comm->AllReduce(x).Wait(); });
  const double seconds = watch.ElapsedSeconds();
  std::printf("silence was noticed after %.3f s (promised: 1 s)\n", seconds);
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

// Rank 0 waits in one group for rank 1, which waits for it in the other.
void EnterInDifferentOrder(RankContext& context) {
  const auto a = MakeTestGroup(context, absl::Seconds(60), "a");
  const auto b = MakeTestGroup(context, absl::Seconds(60), "b");
  Communicator& first = context.rank == 0 ? *a : *b;
  Communicator& second = context.rank == 0 ? *b : *a;
  RequireError(absl::StatusCode::kDeadlineExceeded,
               {"did not call AllReduce(float32 x 5, sum) within 2s",
                "rank 0 waits in group \"a\" for collective 0",
                "rank 1 waits in group \"b\" for collective 0", "in different order"},
               [&] { first.AllReduce(Empty({5}), {.timeout = absl::Seconds(2)}).Wait(); });
  context.store->Set(absl::StrCat("done/", context.rank), "", Deadline());
  context.store->Wait({"done/0", "done/1"}, Deadline::After(absl::Seconds(30)));
  Require(second.sequence() == 0, "the other group's call was never issued");
}

// Rank 1 sends, and takes what it has sent itself, when rank 0 has been warned.
void WaitForASlowSender(RankContext& context) {
  ProcessGroupOptions options = TestGroupOptions(context);
  options.timeout = absl::Seconds(60);
  options.slow_warning = absl::Milliseconds(300);
  options.on_slow = [&context](const std::string& warning) {
    const std::string key = absl::StrCat("warnings/", context.rank);
    context.store->Set(absl::StrCat(key, "/", context.store->Add(key, 1, Deadline())), warning,
                       Deadline());
  };
  const auto comm = InitProcessGroup(options);
  const Deadline patience = Deadline::After(absl::Seconds(30));
  for (int message = 0; message < 3; ++message) {
    const Tensor x = FromVector<float>({static_cast<float>(message), 2, 3}, {3});
    const Tensor got = Empty({3});
    const bool slow = message == 1;
    if (context.rank == 0) {
      comm->Recv(got, 1).Wait();
      Require(got.Item<float>({0}) == static_cast<float>(message), "what was received");
    } else {
      const Work to_self = slow ? comm->Send(x, 1) : Work();
      for (const char* key : {"warnings/0/1", "warnings/1/1"}) {
        if (slow) context.store->Get(key, patience);
      }
      comm->Send(x, 0).Wait();
      if (slow) comm->Recv(got, 1).Wait();
      to_self.Wait();
    }
  }
  comm->Barrier().Wait();
  const std::string key = absl::StrCat("warnings/", context.rank);
  Require(context.store->Add(key, 0, patience) == 1, "one warning for one transfer");
  const std::string warning = context.store->Get(key + "/1", patience);
  for (const std::string& part :
       {std::string("group \"world\": slow: for "),
        std::string(context.rank == 0 ? "rank 0 waits in group \"world\" for message 1 "
                                        "(Recv(float32 x 3, from rank 1)), which rank 1 has not "
                                        "sent: "
                                      : "rank 1 waits in group \"world\" for message 0 "
                                        "(Send(float32 x 3, to rank 1)), which rank 1 has not ")}) {
    Require(absl::StrContains(warning, part), part + " in " + warning);
  }
}

TEST(WaitTest, ASlowSenderIsWarnedOf) {
  for (const SpawnMode mode : {SpawnMode::kThreads, SpawnMode::kProcesses}) {
    ExpectAllOk(Spawn(2, WaitForASlowSender, {.mode = mode, .argument = "backend=gloo hosts=own"}));
  }
}

// Both receive before they send.
void ReceiveFromEachOther(RankContext& context) {
  const auto comm = MakeTestGroup(context, absl::Seconds(2));
  comm->Barrier().Wait();
  RequireError(absl::StatusCode::kDeadlineExceeded,
               {"did not call Send(float32 x 3, to rank", "within 2s",
                "rank 0 waits in group \"world\" for message 0 (Recv(float32 x 3, from rank 1)), "
                "which rank 1 has not sent: ",
                "rank 1 waits in group \"world\" for message 0 (Recv(float32 x 3, from rank 0)), "
                "which rank 0 has not sent: ",
                "the ranks wait for each other"},
               [&] { comm->Recv(Empty({3}), 1 - context.rank).Wait(); });
  context.store->Set(absl::StrCat("done/", context.rank), "", Deadline());
  context.store->Wait({"done/0", "done/1"}, Deadline::After(absl::Seconds(30)));
}

TEST(WaitTest, ACircleOfReceivesIsExplained) {
  ExpectAllOk(Spawn(2, ReceiveFromEachOther,
                    {.mode = SpawnMode::kThreads, .argument = "backend=gloo hosts=own"}));
}

TEST(WaitTest, ACircleIsExplained) {
  ExpectAllOk(Spawn(2, EnterInDifferentOrder,
                    {.mode = SpawnMode::kThreads, .argument = "backend=gloo hosts=own"}));
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
