// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Times collectives on the ranks of this machine: comm_bench_options.h, or --help.

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/tools/comm_bench_case.h"
#include "lockstep/tools/comm_bench_options.h"
#include "lockstep/tools/run_tool.h"

namespace lockstep::comm_bench {
namespace {

using comm::Communicator;

// Of this machine, now.
int64_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    int64_t kib = 0;
    if (absl::ConsumePrefix(&rest, "MemAvailable:") && absl::ConsumeSuffix(&rest, "kB") &&
        absl::SimpleAtoi(absl::StripAsciiWhitespace(rest), &kib)) {
      return kib << 10;
    }
  }
  return std::numeric_limits<int64_t>::max();  // nothing is known
}

void Print(const Options& options, const std::string& backend, const std::string& op, int64_t bytes,
           bool in_place, const Measurement& m) {
  const double algorithm = static_cast<double>(bytes) / m.seconds * 1e-9;
  const double bus = algorithm * BusFactor(op, options.ranks);
  if (options.json) {
    std::printf(
        "{\"backend\": \"%s\", \"op\": \"%s\", \"ranks\": %d, \"size_bytes\": %lld, "
        "\"in_place\": %s, \"latency_us\": %.3f, \"algorithm_bandwidth_gbps\": %.4f, "
        "\"bus_bandwidth_gbps\": %.4f, \"errors\": %lld}\n",
        backend.c_str(), op.c_str(), options.ranks, static_cast<long long>(bytes),
        in_place ? "true" : "false", m.seconds * 1e6, algorithm, bus,
        static_cast<long long>(m.errors));
  } else {
    std::printf("%-8s %-15s %5d %12lld %9s %12.2f %10.3f %10.3f %7lld\n", backend.c_str(),
                op.c_str(), options.ranks, static_cast<long long>(bytes), in_place ? "yes" : "no",
                m.seconds * 1e6, algorithm, bus, static_cast<long long>(m.errors));
  }
  tools::FlushOutput();
}

void RankMain(comm::RankContext& context) {
  const Options options = ParseOptions(absl::StrSplit(context.argument, '\n', absl::SkipEmpty()));
  int64_t errors = 0;
  for (const std::string& backend : options.backends) {
    comm::ProcessGroupOptions group = context.group_options("bench_" + backend);
    group.backend = backend;
    // All ranks are on this machine: what is asked for is TCP, not the memory of one host again.
    if (backend == "gloo") group.host_grouping = comm::HostGrouping::kFlat;
    const std::shared_ptr<Communicator> comm = comm::InitProcessGroup(group);
    for (const std::string& op : options.ops) {
      for (const int64_t bytes : options.sizes) {
        for (const bool in_place : {false, true}) {
          if (in_place && !Case::HasInPlace(op)) continue;
          Case c(*comm, op, bytes, in_place, options.allocated);
          const Measurement m = Measure(*comm, c);
          errors += m.errors;
          if (context.rank == 0) Print(options, backend, op, c.bytes(), in_place, m);
        }
      }
    }
    comm->Barrier().Wait();
  }
  if (errors > 0) throw lockstep::DataLossError("wrong results: see the column of errors");
}

int Run(const std::vector<std::string>& arguments) {
  const Options options = ParseOptions(arguments);
  if (options.help) {
    std::printf("%s", HelpText().c_str());
    return 0;
  }
  CheckMemory(options, AvailableBytes());
  if (!options.json) {
    std::printf("%-8s %-15s %5s %12s %9s %12s %10s %10s %7s\n", "backend", "op", "ranks", "bytes",
                "in place", "latency us", "alg GB/s", "bus GB/s", "errors");
    tools::FlushOutput();
  }
  comm::Spawn(options.ranks, RankMain,
              {.mode = options.mode, .argument = absl::StrJoin(arguments, "\n")})
      .ThrowIfFailed();
  return 0;
}

}  // namespace
}  // namespace lockstep::comm_bench

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  return lockstep::tools::RunTool("comm_bench", argc, argv, lockstep::comm_bench::Run);
}
