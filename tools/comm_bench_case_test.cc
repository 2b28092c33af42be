// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/comm_bench_case.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/fault_injection.h"
#include "lockstep/comm/fault_injector.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tools/comm_bench_options.h"

namespace lockstep::comm_bench {
namespace {

void Expect(int64_t got, int64_t wanted, const std::string& what) {
  if (got == wanted) return;
  throw InternalError(absl::StrCat(what, ": ", got, " errors, not ", wanted));
}

// Every output is right, and one wrong element of it, or two, are counted.
void CountPlantedErrors(comm::RankContext& context) {
  const std::shared_ptr<comm::Communicator> comm = comm::InitProcessGroup(context.group_options());
  for (const std::string& op : OpNames()) {
    for (const bool in_place : {false, true}) {
      if (in_place && !Case::HasInPlace(op)) continue;
      const std::string what =
          absl::StrCat(op, in_place ? ", in place" : "", " on rank ", context.rank);
      Case c(*comm, op, 3000, in_place, /*allocated=*/!in_place);
      c.Fill();
      c.Call().Wait();
      Expect(c.Errors(), 0, what);
      const bool root = context.rank == 0;
      const bool has_output =
          op == "broadcast" ? !root : root || (op != "reduce" && op != "gather");
      if (!has_output) continue;
      float* output = MutableData<float>(c.output());
      output[0] += 1;
      Expect(c.Errors(), 1, what);
      output[c.output().numel() - 1] = 1e9f;
      Expect(c.Errors(), 2, what);
    }
  }
  comm->Barrier().Wait();
}

TEST(CaseTest, AnErrorInAnyOutputIsCounted) {
  comm::Spawn(3, CountPlantedErrors, {.mode = comm::SpawnMode::kThreads}).ThrowIfFailed();
}

// A bit that flips on the way, unnoticed: every rank's measurement has it.
void MeasureADamagedCall(comm::RankContext& context) {
  for (const bool damaged : {true, false}) {
    comm::ProcessGroupOptions options = context.group_options(damaged ? "damaged" : "whole");
    options.fault_injector = std::make_shared<comm::PlannedFaults>(std::vector<comm::PlannedFault>{
        {.kind = comm::FaultKind::kCorruptPayload, .rank = 1, .number = 0, .group = "damaged"}});
    const std::shared_ptr<comm::Communicator> comm = comm::InitProcessGroup(options);
    Case c(*comm, "all_reduce", 1024, /*in_place=*/false, /*allocated=*/true);
    const Measurement m = Measure(*comm, c);
    if (!damaged) Expect(m.errors, 0, "a whole call");
    if (damaged && m.errors < 1) throw InternalError("a damaged call shows no error");
    if (m.seconds <= 0) throw InternalError("no time was measured");
    comm->Barrier().Wait();
  }
}

TEST(MeasureTest, AWrongResultShowsOnEveryRank) {
  comm::Spawn(2, MeasureADamagedCall, {.mode = comm::SpawnMode::kThreads}).ThrowIfFailed();
}

}  // namespace
}  // namespace lockstep::comm_bench
