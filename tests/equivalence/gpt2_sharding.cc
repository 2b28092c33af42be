// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The table of bytes a rank in docs/fsdp.md.
//
//   ./bazelw run //tests/equivalence:gpt2_sharding -- --ranks=8                 # 85 M parameters
//   ./bazelw run //tests/equivalence:gpt2_sharding -- --ranks=8 --size=small    # GPT small
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "lockstep/base/error.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tests/equivalence/sharded_memory.h"

ABSL_FLAG(std::string, size, "bytes",
          "bytes (12 layers of width 768 over bytes), small, mini or nano.");
ABSL_FLAG(int, ranks, 8, "Ranks, 1 to 8.");
ABSL_FLAG(int, block, 64, "Tokens a row; one row a rank.");
ABSL_FLAG(
    std::vector<std::string>, strategies,
    (std::vector<std::string>{"ddp", "zero1", "fsdp_grad_op", "fsdp", "fsdp_offload"}),
    "One row each. ddp has the same bytes on any number of ranks, and with many they are more "
    "than a machine may have.");

namespace lockstep::equivalence {
namespace {

double Megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

void Print(const std::string& name, const MemoryRun& run) {
  const RankMemory memory = TrainAndMeasure(run)[0];
  const UnitBytes unit = UnitBytesOf(run.config);
  std::printf("%-22s %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f\n", name.c_str(),
              Megabytes(memory.parameter_bytes), Megabytes(memory.gradient_bytes),
              Megabytes(memory.optimizer_bytes),
              FormulaBytes(run.strategy, unit.all, run.ranks) / 1e6, Megabytes(memory.host_bytes),
              Megabytes(memory.peaks.peak[MemoryCategory::kCommunication]),
              Megabytes(memory.peaks.peak_bytes));
  std::fflush(stdout);
}

int Main() {
  const std::string size = absl::GetFlag(FLAGS_size);
  MemoryRun run;
  run.config = size == "bytes" ? models::Gpt2Preset("small") : models::Gpt2Preset(size);
  if (size == "bytes") run.config.vocabulary = 256;
  run.config.block = absl::GetFlag(FLAGS_block);
  run.ranks = absl::GetFlag(FLAGS_ranks);
  run.checkpointed = true;
  const UnitBytes unit = UnitBytesOf(run.config);
  std::printf(
      "%d ranks, %.1f M parameters, root %.1f MB, block %.1f MB; MB a rank, activations of "
      "blocks recomputed\n",
      run.ranks, static_cast<double>(unit.all) / 4e6, Megabytes(unit.root), Megabytes(unit.block));
  std::printf("%-22s %10s %10s %10s %10s %10s %10s %10s\n", "strategy", "parameters", "gradients",
              "optimizer", "formula", "host", "gathered", "peak");
  for (const std::string& strategy : absl::GetFlag(FLAGS_strategies)) {
    run.strategy = strategy;
    run.deferred = strategy != "ddp" && strategy != "zero1";
    Print(strategy, run);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::equivalence

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  try {
    return lockstep::equivalence::Main();
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "gpt2_sharding: %s\n", error.message().c_str());
    return 1;
  }
}
