// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Random programs, in each of which one message is struck by a fault: all ranks get the right
// results, or all of them an error that names ranks; none hangs. At 2 to 5 ranks: one has nobody to
// send to. `--soak`: many more.

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/backend_tests/backend_test.h"
#include "lockstep/comm/backend_tests/random_programs.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/fault_injection.h"
#include "lockstep/comm/fault_injector.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/spawn.h"

namespace lockstep::comm {
namespace {

bool soak = false;  // of main, before tests run

constexpr char kRight[] = "right";

// Where program `seed` is struck: any rank, one of the first messages.
PlannedFault Plan(FaultKind kind, uint64_t seed, int ranks, const std::string& group) {
  // A transfer that is dropped costs its deadline as a collective does; half as many are enough.
  const bool transfer = kind != FaultKind::kDrop && seed % 2 == 1;
  const uint64_t number = transfer ? seed / 8 % 2 : seed / 2 % 4;
  return {.kind = kind,
          .rank = static_cast<int>(seed / 2 % static_cast<uint64_t>(ranks)),
          .number = static_cast<int64_t>(number),
          .transfer = transfer,
          .group = group};
}

ProcessGroupOptions StruckOptions(const RankContext& context, const PlannedFault& fault) {
  ProcessGroupOptions options = TestGroupOptions(context, fault.group);
  options.verify_payload = true;
  options.timeout = absl::Seconds(60);
  options.fault_injector = std::make_shared<PlannedFaults>(std::vector<PlannedFault>{fault});
  options.on_slow = [](const std::string&) {};
  return options;
}

void RunToTheEnd(Communicator& comm, uint64_t seed) {
  RunProgram(comm, 7919 * seed);  // neighbours would begin alike, most of them without a transfer
  comm.Barrier().Wait();          // whoever has not noticed yet does now
}

// What became of the program on this rank: kRight, or the error.
std::string RunStruck(const RankContext& context, FaultKind kind, uint64_t seed,
                      const std::string& name) {
  ProcessGroupOptions options = StruckOptions(context, Plan(kind, seed, context.world_size, name));
  // The group is made in that time too, a thousand times in a soak.
  const bool many = absl::StrContains(context.argument, "soak");
  if (kind == FaultKind::kDrop) options.timeout = absl::Seconds(many ? 3 : 1);
  const auto comm = InitProcessGroup(options);
  try {
    RunToTheEnd(*comm, seed);
    return kRight;
  } catch (const Error& error) {
    const bool named = absl::StrContains(error.message(), "rank ") &&
                       (error.code() == absl::StatusCode::kDataLoss ||
                        error.code() == absl::StatusCode::kDeadlineExceeded);
    Require(named, absl::StrCat(name, ": ", error.what()));
    return error.what();
  }
}

// All ranks fare alike. Returns whether they got an error.
bool RunAndCompare(const RankContext& context, FaultKind kind, uint64_t seed) {
  const std::string name = absl::StrCat(FaultKindName(kind), " in program ", seed);
  const std::string mine = RunStruck(context, kind, seed, name);
  const Deadline patience = Deadline::After(absl::Seconds(60));
  context.store->Set(absl::StrCat(name, "/", context.rank), mine, patience);
  for (int rank = 0; rank < context.world_size; ++rank) {
    const std::string theirs = context.store->Get(absl::StrCat(name, "/", rank), patience);
    Require((mine == kRight) == (theirs == kRight),
            absl::StrCat(name, ": rank ", context.rank, ": ", mine, ", rank ", rank, ": ", theirs));
  }
  return mine != kRight;
}

void RunMany(RankContext& context) {
  const bool many = absl::StrContains(context.argument, "soak");
  const bool gloo = absl::StrContains(context.argument, "gloo");
  for (const FaultKind kind :
       {FaultKind::kDelay, FaultKind::kDrop, FaultKind::kDuplicate, FaultKind::kReorder,
        FaultKind::kCorruptHeader, FaultKind::kCorruptPayload}) {
    // Deadlines take their time, as do Gloo's connections.
    const int few = kind == FaultKind::kDrop ? (gloo ? 1 : 2) : (gloo ? 4 : 8);
    const int programs = many ? 20 * few : few;
    int errors = 0;
    for (int i = 0; i < programs; ++i) {
      const int seed = 90000 + 1000 * context.world_size + (kind == FaultKind::kDrop ? 2 * i : i);
      errors += RunAndCompare(context, kind, static_cast<uint64_t>(seed)) ? 1 : 0;
    }
    if (context.rank == 0) {
      std::printf("%s, %d ranks: %d programs, %d with an error\n",
                  std::string(FaultKindName(kind)).c_str(), context.world_size, programs, errors);
    }
    if (kind == FaultKind::kDelay) Require(errors == 0, "a delay is no error");
    if (kind != FaultKind::kDelay) Require(errors >= programs / 4, "too few were struck");
  }
}

// A rank is killed in the middle; `context.argument` ends with the seed. Those who survive return
// when they have the error that names it, and throw kRight where nothing was struck.
void RunKilled(RankContext& context) {
  const std::string digits = context.argument.substr(context.argument.rfind(' ') + 1);
  uint64_t seed = 0;
  Require(absl::SimpleAtoi(digits, &seed), context.argument);
  const PlannedFault fault =
      Plan(FaultKind::kKill, seed, context.world_size, absl::StrCat("kill in program ", seed));
  const auto comm = InitProcessGroup(StruckOptions(context, fault));
  const Stopwatch watch;
  try {
    RunToTheEnd(*comm, seed);
  } catch (const Error& error) {
    Require(error.code() == absl::StatusCode::kUnavailable &&
                absl::StrContains(error.message(), absl::StrCat("rank ", fault.rank, " has died")),
            absl::StrCat(fault.group, ": ", error.what()));
    Require(watch.ElapsedSeconds() < 10, "told too late: the promise is a second");
    return;
  }
  throw FailedPreconditionError(kRight);
}

LOCKSTEP_BACKEND_SUITE(FaultProgramsTest);

TEST_P(FaultProgramsTest, RightOrAnErrorOnAllRanks) {
  const std::string suffix = soak ? " soak" : "";
  for (const SpawnMode mode : soak ? AllModes() : Modes()) {
    for (const int ranks : {2, 3, 4, 5}) {
      for (const absl::string_view access : {"direct", "staged"}) {
        if (access == "staged" && ranks != 3) continue;
        ExpectAllOk(
            Spawn(ranks, RunMany, {.mode = mode, .argument = absl::StrCat(access, suffix)}));
      }
    }
  }
}

TEST_P(FaultProgramsTest, AKilledRankIsNamedByTheOthers) {
  int killed = 0;
  int programs = 0;
  const int few = IsShm() ? 4 : 2;
  for (const int ranks : {2, 3, 4, 5}) {
    for (int i = 0; i < (soak ? 20 * few : few); ++i) {
      const int seed = 91000 + 1000 * ranks + i;
      const SpawnResult result = Spawn(ranks, RunKilled, {.argument = absl::StrCat("at ", seed)});
      const int victim = Plan(FaultKind::kKill, static_cast<uint64_t>(seed), ranks, "").rank;
      const bool struck = result.ranks[static_cast<size_t>(victim)].signal == SIGKILL;
      ++programs;
      killed += struck ? 1 : 0;
      for (const RankExit& exit : result.ranks) {
        if (struck && exit.rank == victim) continue;
        if (struck) {
          EXPECT_TRUE(exit.ok()) << "program " << seed << ": " << exit.ToString();
        } else {
          EXPECT_EQ(exit.error, kRight) << "program " << seed;
        }
      }
    }
  }
  std::printf("kill: %d programs, %d with an error\n", programs, killed);
  EXPECT_GT(killed, programs / 4) << "too few were struck";
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  lockstep::comm::soak = std::any_of(
      argv, argv + argc, [](const char* a) { return absl::string_view(a) == "--soak"; });
  return RUN_ALL_TESTS();
}
