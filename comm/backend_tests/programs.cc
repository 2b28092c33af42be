// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Random programs (random_programs.h) for each number of ranks, in threads and processes. A failure
// prints the program's seed: `--seed=N --ranks=R` runs that program alone, `--soak` a thousand for
// each number of ranks.

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "lockstep/comm/backend_tests/backend_test.h"
#include "lockstep/comm/backend_tests/random_programs.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/subgroups.h"

namespace lockstep::comm {
namespace {

struct Flags {
  bool soak = false;
  int64_t seed = -1;
  int ranks = 0;
};
Flags flags;  // of main, before tests run

void RunPrograms(RankContext& context, uint64_t first, uint64_t count) {
  const auto comm = MakeTestGroup(context);
  // A third of the programs runs in two groups at a time.
  const auto half = Split(*comm, context.rank % 2, -context.rank);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    RunProgram(seed % 3 == 0 ? *half : *comm, seed);
  }
  comm->Barrier().Wait();
}

LOCKSTEP_BACKEND_SUITE(ProgramsTest);

TEST_P(ProgramsTest, Threads) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    if (flags.ranks > 0 && flags.ranks != ranks) continue;
    // What goes over TCP takes several times as long.
    const uint64_t usual = IsShm() ? 200 : 60;
    const uint64_t count = flags.seed >= 0 ? 1 : flags.soak ? 1000 : usual;
    const uint64_t first =
        flags.seed >= 0 ? static_cast<uint64_t>(flags.seed) : static_cast<uint64_t>(ranks) * 10000;
    for (const absl::string_view access :
         {"direct", "staged", "direct verified", "staged verified"}) {
      // Checksums change no path: fewer programs show that they raise no false alarm.
      const bool verified = absl::StrContains(access, "verified");
      if (verified && !IsShm()) continue;
      const uint64_t n = verified ? (count + 3) / 4 : count;
      std::printf("%d ranks, %s: %d programs from --seed=%d on\n", ranks, access.data(),
                  static_cast<int>(n), static_cast<int>(first));
      ExpectAllOk(SpawnThreads(ranks, [=](RankContext& context) { RunPrograms(context, first, n); },
                               {.argument = std::string(access)}));
    }
  }
}

void RunInProcesses(RankContext& context) { RunPrograms(context, 70000, 40); }

TEST_P(ProgramsTest, Processes) {
  if (flags.ranks > 0) GTEST_SKIP();
  ExpectAllOk(Spawn(3, RunInProcesses));
  ExpectAllOk(Spawn(3, RunInProcesses, {.argument = "staged"}));
  if (!IsShm()) return;
  ExpectAllOk(Spawn(3, RunInProcesses, {.argument = "verified"}));
  ExpectAllOk(Spawn(3, RunInProcesses, {.argument = "staged verified"}));
}

Flags ParseFlags(int argc, char** argv) {
  Flags parsed;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--soak") {
      parsed.soak = true;
    } else if (absl::ConsumePrefix(&argument, "--seed=")) {
      if (!absl::SimpleAtoi(argument, &parsed.seed)) parsed.seed = -1;
    } else if (absl::ConsumePrefix(&argument, "--ranks=")) {
      if (!absl::SimpleAtoi(argument, &parsed.ranks)) parsed.ranks = 0;
    }
  }
  return parsed;
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  lockstep::comm::flags = lockstep::comm::ParseFlags(argc, argv);
  return RUN_ALL_TESTS();
}
