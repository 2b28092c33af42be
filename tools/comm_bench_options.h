// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What comm_bench is asked to measure, and its formulas.
#ifndef LOCKSTEP_TOOLS_COMM_BENCH_OPTIONS_H_
#define LOCKSTEP_TOOLS_COMM_BENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/comm/spawn.h"

namespace lockstep::comm_bench {

struct Options {
  int ranks = 2;
  std::vector<std::string> backends = {"shm"};
  std::vector<std::string> ops = {"all_reduce"};
  std::vector<int64_t> sizes = {1 << 10, 1 << 20, 64 << 20};  // bytes
  comm::SpawnMode mode = comm::SpawnMode::kProcesses;
  bool allocated = true;  // memory from Communicator::Allocate
  bool json = false;
  bool help = false;
};

// Backends that the program has: shm and gloo.
const std::vector<std::string>& BackendNames();

// From "--ranks=2", "--sizes=1KiB,64MiB", ... Throws InvalidArgument, naming the flag and what is
// allowed.
Options ParseOptions(const std::vector<std::string>& arguments);

// "all_reduce", ...
const std::vector<std::string>& OpNames();

// Throws ResourceExhausted, with what to do, when the tensors of the largest size on all ranks, an
// input and an output each, take more than `available_bytes` (MemAvailable of /proc/meminfo).
void CheckMemory(const Options& options, int64_t available_bytes);

std::string HelpText();

// Bus bandwidth over algorithm bandwidth, as nccl-tests define them: algorithm bandwidth is the
// size over the time, where the size is that of the larger of a rank's tensors.
double BusFactor(absl::string_view op, int ranks);

}  // namespace lockstep::comm_bench

#endif  // LOCKSTEP_TOOLS_COMM_BENCH_OPTIONS_H_
