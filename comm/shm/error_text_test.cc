// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Whatever goes wrong in a group, each rank's error says what it called itself, as which rank of
// which group and with which number, and what the others did.

#include <signal.h>
#include <unistd.h>

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

constexpr char kSum[] = "AllReduce(float32 x 5, sum)";
constexpr char kRoot[] = "Broadcast(float32 x 5, root 0)";

// In each row ranks 0, 1 and 2 have met in collective 0 and then call these; a row without a call
// of rank 2 leaves it waiting for the others' errors, before it calls AllReduce.
struct Row {
  std::string name;
  absl::StatusCode code;
  std::vector<std::function<void(Communicator&)>> calls;  // by rank; null: see above
  std::vector<std::string> texts;                         // what each rank called, by rank
  std::vector<std::string> parts;                         // in everybody's error
  bool processes_only = false;
};

void Sum(Communicator& c) { c.AllReduce(Empty({5})).Wait(); }
void FromRoot(Communicator& c) { c.Broadcast(Empty({5})).Wait(); }
void SendToOne(Communicator& c) { c.Send(Empty({5}), 1).Wait(); }
void ReceiveFromZero(Communicator& c) { c.Recv(Empty({5}), 0).Wait(); }
void ReceiveFromTwo(Communicator& c) { c.Recv(Empty({5}), 2).Wait(); }
void ReceiveMore(Communicator& c) { c.Recv(Empty({6}), 0, {.tag = 8}).Wait(); }
void Die(Communicator&) { kill(getpid(), SIGKILL); }
void Abort(Communicator& c) {
  c.Abort("the disk is full");
  Sum(c);
}

std::vector<Row> Rows() {
  using Code = absl::StatusCode;
  const std::string send = "Send(float32 x 5, to rank 1)";
  return {
      {"mismatch",
       Code::kInvalidArgument,
       {Sum, Sum, FromRoot},
       {kSum, kSum, kRoot},
       {"disagree on collective 1: rank ", absl::StrCat(" called ", kSum),
        absl::StrCat("rank 2 called ", kRoot)}},
      {"missing",
       Code::kDeadlineExceeded,
       {Sum, Sum, nullptr},
       {kSum, kSum, kSum},
       {absl::StrCat("rank 2 did not call ", kSum, " within 1.5s of rank "), "as collective 1"}},
      {"abort",
       Code::kAborted,
       {Sum, Sum, Abort},
       {kSum, kSum, kSum},
       {"aborted by rank 2: the disk is full"}},
      {"dead", Code::kUnavailable, {Sum, Sum, Die}, {kSum, kSum, ""}, {"rank 2 has died"}, true},
      {"transfer mismatch",
       Code::kInvalidArgument,
       {SendToOne, ReceiveMore, Sum},
       {send, "Recv(float32 x 6, from rank 0, tag 8)", kSum},
       {"disagree on message 0 from rank 0 to rank 1: rank 0 called ", send,
        "rank 1 called Recv(float32 x 6, from rank 0, tag 8)"}},
      // Whoever reaches its deadline first tells it.
      {"transfer missing",
       Code::kDeadlineExceeded,
       {Sum, ReceiveFromZero, nullptr},
       {kSum, "Recv(float32 x 5, from rank 0)", kSum},
       {"did not call ", " within 1.5s of rank "}},
      {"transfer dead",
       Code::kUnavailable,
       {ReceiveFromTwo, Sum, Die},
       {"Recv(float32 x 5, from rank 2)", kSum, ""},
       {"rank 2 has died"},
       true},
  };
}

void RunRow(const RankContext& context, const Row& row) {
  ProcessGroupOptions options = context.group_options(row.name);
  options.timeout =
      row.code == absl::StatusCode::kDeadlineExceeded ? absl::Seconds(1.5) : absl::Seconds(60);
  options.on_slow = [](const std::string&) {};
  const auto comm = InitProcessGroup(options);
  comm->Barrier().Wait();
  const auto me = static_cast<size_t>(context.rank);
  const auto done = [&row](int rank) { return absl::StrCat(row.name, "/", rank); };
  if (row.calls[me] == nullptr) context.store->Wait({done(0), done(1)}, Patience());
  std::vector<std::string> parts = row.parts;
  parts.push_back(row.texts[me]);
  parts.push_back(absl::StrCat("rank ", context.rank, " of group \"", row.name, "\""));
  RequireError(row.code, parts, [&] { (row.calls[me] == nullptr ? Sum : row.calls[me])(*comm); });
  context.store->Set(done(context.rank), "", Patience());
}

void RunRows(RankContext& context) {
  for (const Row& row : Rows()) {
    if (!row.processes_only) RunRow(context, row);
  }
}

TEST(ErrorTextTest, EveryRankSaysAll) {
  for (const SpawnMode mode : {SpawnMode::kThreads, SpawnMode::kProcesses}) {
    ExpectAllOk(Spawn(3, RunRows, {.mode = mode}));
  }
}

void RunNamedRow(RankContext& context) {
  for (const Row& row : Rows()) {
    if (row.name == context.argument) RunRow(context, row);
  }
}

TEST(ErrorTextTest, OfADeadRank) {
  for (const char* name : {"dead", "transfer dead"}) {
    const SpawnResult result = Spawn(3, RunNamedRow, {.argument = name});
    EXPECT_EQ(result.ranks[2].signal, SIGKILL);
    EXPECT_TRUE(result.ranks[0].ok()) << result.ranks[0].ToString();
    EXPECT_TRUE(result.ranks[1].ok()) << result.ranks[1].ToString();
  }
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
