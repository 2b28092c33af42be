// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// AllReduce over shared memory, against what the memory can do.
//
//   bus bandwidth = 2 (W - 1) / W * bytes / time, for W ranks (a rank's share of the traffic);
//   comm/memory_bandwidth.h has what bounds it.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/median.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/memory_bandwidth.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm {
namespace {

constexpr int64_t kSizes[] = {1 << 10, 16 << 10, 128 << 10, 1 << 20, 8 << 20, 64 << 20};

template <typename Function>
double MedianSeconds(int64_t bytes, const Function& run) {
  const int repeats = bytes >= (8 << 20) ? 4 : bytes >= (128 << 10) ? 50 : 300;
  for (int i = 0; i < repeats / 10 + 2; ++i) run();
  // The median of batches: one late wake-up must not decide.
  std::vector<double> seconds;
  for (int batch = 0; batch < 5; ++batch) {
    const Stopwatch watch;
    for (int i = 0; i < repeats; ++i) run();
    seconds.push_back(watch.ElapsedSeconds() / repeats);
  }
  return Median(seconds);
}

void MeasureRank(RankContext& context) {
  ProcessGroupOptions options = context.group_options();
  if (context.argument == "staged") options.peer_memory_access = PeerMemoryAccess::kStaged;
  options.verify_payload = context.argument == "verified";
  const std::shared_ptr<Communicator> comm = InitProcessGroup(options);
  for (const bool allocated : {true, false}) {
    for (const int64_t bytes : kSizes) {
      const int64_t count = bytes / 4;
      const Tensor tensor =
          allocated ? FromStorage(comm->Allocate(bytes), ShapeSpan({count}), DType::kFloat32)
                    : Empty({count});
      std::memset(MutableRawData(tensor), 0, static_cast<size_t>(bytes));
      comm->Barrier().Wait();
      const double seconds = MedianSeconds(bytes, [&] { comm->AllReduce(tensor).Wait(); });
      if (context.rank != 0) continue;
      const double bus = 2.0 * (comm->size() - 1) / comm->size() * static_cast<double>(bytes);
      std::printf("%d %s, %s memory%s: %8lld KiB  %10.1f us  bus %7.2f GB/s\n", comm->size(),
                  context.mode == SpawnMode::kThreads ? "threads" : "processes",
                  allocated ? "allocated" : "ordinary ",
                  context.argument.empty() ? "" : (" (" + context.argument + ")").c_str(),
                  static_cast<long long>(bytes >> 10), seconds * 1e6, bus / seconds * 1e-9);
      std::fflush(stdout);
    }
  }
}

}  // namespace

void RunAll() {
  PrintMemoryBandwidth(MeasureMemoryBandwidth());
  for (const int ranks : {2, 4}) {
    Spawn(ranks, MeasureRank, {.mode = SpawnMode::kProcesses}).ThrowIfFailed();
    Spawn(ranks, MeasureRank, {.mode = SpawnMode::kProcesses, .argument = "staged"})
        .ThrowIfFailed();
    Spawn(ranks, MeasureRank, {.mode = SpawnMode::kProcesses, .argument = "verified"})
        .ThrowIfFailed();
    Spawn(ranks, MeasureRank, {.mode = SpawnMode::kThreads}).ThrowIfFailed();
  }
}

}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  try {
    lockstep::comm::RunAll();
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
