// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Random programs, in each of which one message is struck by a fault: all ranks get the right
// results, or all of them an error that names ranks; none hangs. `--soak`: many more.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/backend_tests/backend_test.h"
#include "lockstep/comm/backend_tests/random_programs.h"
#include "lockstep/comm/fault_injection.h"
#include "lockstep/comm/fault_injector.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/spawn.h"

namespace lockstep::comm {
namespace {

bool soak = false;  // of main, before tests run

constexpr char kRight[] = "right";

// What became of the program on this rank: kRight, or the error.
std::string RunStruck(const RankContext& context, FaultKind kind, uint64_t seed,
                      const std::string& name) {
  const auto size = static_cast<uint64_t>(context.world_size);
  const PlannedFault fault = {.kind = kind,
                              .rank = static_cast<int>(seed % size),
                              .number = static_cast<int64_t>(seed / size % 5),
                              .transfer = seed / size / 5 % 3 == 0,
                              .group = name};
  ProcessGroupOptions options = TestGroupOptions(context, name);
  // The group is made in that time too, a thousand times in a soak.
  const bool many = absl::StrContains(context.argument, "soak");
  options.timeout = kind == FaultKind::kDrop ? absl::Seconds(many ? 3 : 1) : absl::Seconds(60);
  options.verify_payload = true;
  options.fault_injector = std::make_shared<PlannedFaults>(std::vector<PlannedFault>{fault});
  options.on_slow = [](const std::string&) {};
  const auto comm = InitProcessGroup(options);
  try {
    RunProgram(*comm, seed);
    comm->Barrier().Wait();  // whoever has not noticed yet does now
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
  for (const FaultKind kind :
       {FaultKind::kDelay, FaultKind::kDrop, FaultKind::kDuplicate, FaultKind::kReorder,
        FaultKind::kCorruptHeader, FaultKind::kCorruptPayload}) {
    const bool drops = kind == FaultKind::kDrop;
    // Deadlines take their time, as do Gloo's connections. Seeds from 90015 strike collectives,
    // those before transfers.
    const bool gloo = absl::StrContains(context.argument, "gloo");
    const int few = drops ? (gloo ? 2 : 6) : (gloo ? 12 : 30);
    const int first = drops ? 90015 : (gloo ? 90008 : 90000);
    const int programs = many ? 20 * few : few;
    int errors = 0;
    for (int i = 0; i < programs; ++i) {
      errors += RunAndCompare(context, kind, static_cast<uint64_t>(first + i)) ? 1 : 0;
    }
    if (context.rank == 0) {
      std::printf("%s: %d programs, %d with an error\n", std::string(FaultKindName(kind)).c_str(),
                  programs, errors);
    }
    if (kind == FaultKind::kDelay) Require(errors == 0, "a delay is no error");
    if (kind != FaultKind::kDelay) Require(errors > programs / 4, "too few were struck");
  }
}

LOCKSTEP_BACKEND_SUITE(FaultProgramsTest);

TEST_P(FaultProgramsTest, RightOrAnErrorOnAllRanks) {
  const std::string suffix = soak ? " soak" : "";
  for (const SpawnMode mode : soak ? AllModes() : Modes()) {
    for (const char* access : {"direct", "staged"}) {
      ExpectAllOk(Spawn(3, RunMany, {.mode = mode, .argument = access + suffix}));
    }
  }
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
