// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Every kind of fault, in a collective and in a transfer, in threads and processes, small and
// large: the outcome is the one that docs/comm.md promises. Promised times are printed; tests fail
// at ten times them.

#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/backend_tests/backend_test.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/fault_injection.h"
#include "lockstep/comm/fault_injector.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {
namespace {

// Rank 1's collective 2, or its message 2 to rank 0, is struck.
constexpr int kStruckRank = 1;
constexpr int64_t kStruck = 2;
constexpr int64_t kCalls = 4;

// What docs/comm.md says of a kind. No code: the result is right.
struct Outcome {
  FaultKind kind;
  std::optional<absl::StatusCode> collective;
  std::optional<absl::StatusCode> transfer;
  const char* collective_text;
  const char* transfer_text;
};

constexpr Outcome kShmOutcomes[] = {
    {FaultKind::kDelay, std::nullopt, std::nullopt, "", ""},
    {FaultKind::kDrop, absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kDeadlineExceeded,
     "as collective 2", "as message 2"},
    {FaultKind::kDuplicate, absl::StatusCode::kDataLoss, absl::StatusCode::kDataLoss,
     "has the header of collective 1 from rank 1", "has message 2 from rank 1"},
    {FaultKind::kReorder, absl::StatusCode::kDataLoss, absl::StatusCode::kDataLoss,
     "has the header of collective 3 from rank 1", "has message 3 from rank 1"},
    {FaultKind::kCorruptHeader, absl::StatusCode::kDataLoss, absl::StatusCode::kDataLoss,
     "has damaged header from rank 1 in collective 2",
     "has damaged header from rank 1 in message "
     "2"},
    {FaultKind::kCorruptPayload, absl::StatusCode::kDataLoss, absl::StatusCode::kDataLoss,
     "has damaged data from rank 1 in collective 2", "has damaged data from rank 1 in message 2"},
};

// What differs: a header that is damaged cannot be told from other bytes, and the header of the one
// before arrives in the place of a transfer's, whose data are not sent.
constexpr Outcome kGlooOutcomes[] = {
    kShmOutcomes[0],
    kShmOutcomes[1],
    {FaultKind::kDuplicate, absl::StatusCode::kDataLoss, absl::StatusCode::kDataLoss,
     "has the header of collective 1 from rank 1", "has message 1 from rank 1"},
    kShmOutcomes[3],
    {FaultKind::kCorruptHeader, absl::StatusCode::kDataLoss, absl::StatusCode::kDataLoss,
     "rank 1 sent rank 0 ", "has damaged header from rank 1 in message 2"},
    kShmOutcomes[5],
};

// Within a host calls are counted by themselves.
constexpr Outcome kDamageWithinHost = {
    FaultKind::kCorruptPayload, absl::StatusCode::kDataLoss, absl::StatusCode::kDataLoss,
    "has damaged data from rank 1 in collective ", "has damaged data from rank 1 in message 2"};

std::vector<Outcome> OutcomesFor(const RankContext& context) {
  if (!absl::StrContains(context.argument, "gloo")) {
    return {std::begin(kShmOutcomes), std::end(kShmOutcomes)};
  }
  std::vector<Outcome> outcomes(std::begin(kGlooOutcomes), std::end(kGlooOutcomes));
  // Rank 1 is not its host's leader.
  if (absl::StrContains(context.argument, "hosts=0,0,1")) outcomes.back() = kDamageWithinHost;
  return outcomes;
}

bool IsStaged(const RankContext& context) { return absl::StrContains(context.argument, "staged"); }

struct Case {
  FaultKind kind;
  bool transfer = false;
  int64_t count = 5;
  bool verify_payload = true;
};

std::string Name(const Case& c) {
  return absl::StrCat(FaultKindName(c.kind),
                      c.transfer ? " of a transfer of " : " of an AllReduce of ", c.count,
                      c.verify_payload ? "" : ", not verified");
}

std::shared_ptr<Communicator> MakeStruckGroup(const RankContext& context, const Case& c,
                                              const std::shared_ptr<PlannedFaults>& faults) {
  ProcessGroupOptions options = TestGroupOptions(context, Name(c));
  // Only what is dropped is to reach its deadline, and not because the machine is busy.
  options.timeout = c.kind == FaultKind::kDrop ? absl::Seconds(1.5) : absl::Seconds(60);
  options.verify_payload = c.verify_payload;
  options.fault_injector = faults;
  options.on_slow = [](const std::string&) {};
  return InitProcessGroup(options);
}

std::shared_ptr<PlannedFaults> Plan(const Case& c) {
  return std::make_shared<PlannedFaults>(std::vector<PlannedFault>{{.kind = c.kind,
                                                                    .rank = kStruckRank,
                                                                    .number = kStruck,
                                                                    .transfer = c.transfer,
                                                                    .group = Name(c)}});
}

double ValueOf(int rank, int64_t i) { return static_cast<double>(rank + 1 + i % 7); }

// Call i of the program. True: the result is right.
bool Call(Communicator& comm, const Case& c) {
  const Tensor x = Empty({c.count}, {DType::kInt32, {}});  // no bit is rounded away
  if (!c.transfer) {
    FillWith(x, [&comm](int64_t i) { return ValueOf(comm.rank(), i); });
    comm.AllReduce(x).Wait();
    const std::vector<double> values = x.ToVector<double>();
    for (int64_t i = 0; i < c.count; ++i) {
      double sum = 0;
      for (int rank = 0; rank < comm.size(); ++rank) sum += ValueOf(rank, i);
      if (values[static_cast<size_t>(i)] != sum) return false;
    }
    return true;
  }
  if (comm.rank() == kStruckRank) {
    FillWith(x, [](int64_t i) { return ValueOf(9, i); });
    comm.Send(x, 0).Wait();
  } else if (comm.rank() == 0) {
    comm.Recv(x, kStruckRank).Wait();
    const std::vector<double> values = x.ToVector<double>();
    for (int64_t i = 0; i < c.count; ++i) {
      if (values[static_cast<size_t>(i)] != ValueOf(9, i)) return false;
    }
  }
  return true;
}

struct Result {
  std::optional<Error> error;
  bool right = true;
  double seconds = 0;  // of the call that threw
};

Result RunProgram(Communicator& comm, const Case& c) {
  Result result;
  Stopwatch watch;
  try {
    for (int64_t i = 0; i < kCalls; ++i) {
      watch.Restart();
      result.right = Call(comm, c) && result.right;
    }
    watch.Restart();
    // Later than the deadline of what was dropped, which is to be told of.
    comm.Barrier({.timeout = absl::Seconds(60)}).Wait();
  } catch (const Error& error) {
    result.error = error;
    result.seconds = watch.ElapsedSeconds();
  }
  return result;
}

void RunCase(const RankContext& context, const Case& c, const Outcome& outcome) {
  const std::string name = Name(c);
  const auto faults = Plan(c);
  const auto comm = MakeStruckGroup(context, c, faults);
  const Result result = RunProgram(*comm, c);
  Require(faults->struck() == (context.rank == kStruckRank ? 1 : 0), name + ": not struck");
  const auto code = c.transfer ? outcome.transfer : outcome.collective;
  if (!code.has_value()) {
    Require(!result.error.has_value() && result.right,
            absl::StrCat(name, ": ", result.error.has_value() ? result.error->what() : "wrong"));
    return;
  }
  Require(result.error.has_value(), name + ": nothing was thrown");
  const std::string& text = result.error->message();
  Require(result.error->code() == *code, absl::StrCat(name, ": ", result.error->what()));
  for (const std::string& part :
       {absl::StrCat("group \"", name, "\""), absl::StrCat("rank ", context.rank, " of group"),
        std::string(c.transfer ? outcome.transfer_text : outcome.collective_text),
        std::string("rank 1")}) {
    Require(absl::StrContains(text, part), absl::StrCat(name, ": no \"", part, "\" in ", text));
  }
  if (c.kind != FaultKind::kDrop) {
    Require(result.seconds < 10, absl::StrCat(name, ": told after ", result.seconds, " s"));
  }
}

void RunAllCases(RankContext& context) {
  for (const Outcome& outcome : OutcomesFor(context)) {
    for (const bool transfer : {false, true}) {
      for (const int64_t count : {int64_t{5}, int64_t{100000}}) {
        // Deadlines take their time: one size in each run.
        if (outcome.kind == FaultKind::kDrop && (count == 5) != IsStaged(context)) {
          continue;
        }
        RunCase(context, {outcome.kind, transfer, count}, outcome);
      }
    }
  }
}

LOCKSTEP_BACKEND_SUITE(FaultTest);

TEST_P(FaultTest, EveryKindHasItsOutcome) {
  for (const SpawnMode mode : Modes()) {
    for (const char* access : {"direct", "staged"}) {
      ExpectAllOk(Spawn(3, RunAllCases, {.mode = mode, .argument = access}));
    }
  }
}

// Without verify_payload nobody looks: why these tests switch it on, and that the fault is there.
void CorruptUnverified(RankContext& context) {
  for (const bool transfer : {false, true}) {
    const Case c = {FaultKind::kCorruptPayload, transfer, 100000, /*verify_payload=*/false};
    const auto comm = MakeStruckGroup(context, c, Plan(c));
    const Result result = RunProgram(*comm, c);
    Require(!result.error.has_value(), "nobody verifies");
    if (context.rank == 0) Require(!result.right, "the fault is not there");
  }
}

TEST_P(FaultTest, DamagedDataAreSilentUnlessVerified) {
  ExpectAllOk(Spawn(3, CorruptUnverified, {.mode = SpawnMode::kThreads}));
}

// A later message shows at once that one is lost.
void DropBeforeAnother(RankContext& context) {
  const Case c = {FaultKind::kDrop, /*transfer=*/true, 5};
  ProcessGroupOptions options = TestGroupOptions(context, Name(c));
  options.fault_injector = Plan(c);
  const auto comm = InitProcessGroup(options);
  RequireError(absl::StatusCode::kDataLoss, {"has message 3 from rank 1", "where message 2"}, [&] {
    std::vector<Work> works;
    for (int64_t i = 0; i < kCalls; ++i) {
      const Tensor x = Empty({5});
      if (context.rank == kStruckRank) works.push_back(comm->Send(x, 0));
      if (context.rank == 0) works.push_back(comm->Recv(x, kStruckRank));
    }
    Work::All(works).Wait();
    comm->Barrier().Wait();
  });
}

TEST_P(FaultTest, ALostMessageIsNoticedByTheNext) {
  // Over Gloo a Send whose message is lost holds up those behind it until its deadline.
  if (!IsShm()) return;
  for (const SpawnMode mode : Modes()) {
    ExpectAllOk(Spawn(2, DropBeforeAnother, {.mode = mode}));
  }
}

// ---- Kill ----

void Kill(RankContext& context) {
  const bool transfer = absl::StrContains(context.argument, "transfer");
  const Case c = {FaultKind::kKill, transfer, 100000};
  const auto comm = MakeStruckGroup(context, c, Plan(c));
  const Result result = RunProgram(*comm, c);
  Require(result.error.has_value(), "the death was not noticed");
  Require(result.error->code() == absl::StatusCode::kUnavailable, result.error->what());
  for (const char* part : {"rank 1 has died", "group \"kill of a"}) {
    Require(absl::StrContains(result.error->message(), part), result.error->message());
  }
  std::printf(
      "rank %d: a kill in %s was told %.3f s after the call at the latest (promised: 1 s)\n",
      context.rank, transfer ? "a transfer" : "an AllReduce", result.seconds);
  Require(result.seconds < 10, "told too late");
}

TEST_P(FaultTest, AKilledRankIsNamed) {
  for (const char* what : {"collective", "transfer"}) {
    const SpawnResult result = Spawn(3, Kill, {.argument = what});
    EXPECT_EQ(result.ranks[1].signal, SIGKILL);
    EXPECT_TRUE(result.ranks[0].ok()) << result.ranks[0].ToString();
    EXPECT_TRUE(result.ranks[2].ok()) << result.ranks[2].ToString();
  }
}

TEST_P(FaultTest, ThreadsAreNotKilled) {
  const auto result = SpawnThreads(2, [](RankContext& context) {
    const Case c = {FaultKind::kKill};
    RequireError(absl::StatusCode::kInvalidArgument, {"kills a rank", "use processes"},
                 [&] { MakeStruckGroup(context, c, Plan(c)); });
  });
  ExpectAllOk(result);
}

// ---- Options that differ ----

void VerifyOnOneRank(RankContext& context) {
  ProcessGroupOptions options = TestGroupOptions(context);
  options.verify_payload = context.rank == 1;
  RequireError(absl::StatusCode::kInvalidArgument,
               {"InitProcessGroup", "verify_payload is o", "on rank 0", "on rank 1"},
               [&] { InitProcessGroup(options); });
}

TEST_P(FaultTest, AllRanksVerifyOrNone) {
  for (const SpawnMode mode : Modes()) {
    ExpectAllOk(Spawn(2, VerifyOnOneRank, {.mode = mode}));
  }
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
