// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Starting the ranks of a job on this host, as processes or as threads.
//
//   void RankMain(comm::RankContext& context) {
//     auto world = comm::InitProcessGroup(context.group_options());
//     ...
//   }
//   int main(int argc, char** argv) {
//     comm::MaybeRunSpawnedRank(argc, argv);         // first: a spawned process never comes back
//     comm::Spawn(4, RankMain, {.argument = config}).ThrowIfFailed();
//   }
//
// Processes are this program again (fork and exec of /proc/self/exe), never a bare fork: the OpenMP
// runtime does not survive one. They die with their parent, however it dies: the kernel sends them
// SIGKILL, and they watch a pipe whose other end only the parent holds. They form process groups of
// their own, so that a Ctrl-C at the terminal reaches the parent, which forwards it once.
#ifndef LOCKSTEP_COMM_SPAWN_H_
#define LOCKSTEP_COMM_SPAWN_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm {

enum class SpawnMode { kProcesses, kThreads };

// What a rank is told. One object a rank.
struct RankContext {
  int rank = 0;
  int world_size = 1;
  SpawnMode mode = SpawnMode::kProcesses;
  std::string argument;          // SpawnOptions::argument
  std::shared_ptr<Store> store;  // shared by all ranks of the job

  // Options for InitProcessGroup: rank, size and store filled in.
  ProcessGroupOptions group_options(std::string group_name = "world") const;
};

struct SpawnOptions {
  SpawnMode mode = SpawnMode::kProcesses;
  // Bytes handed to every rank (a serialised configuration): at most 1 MiB.
  std::string argument = {};
  // Threads an op may use in each rank; 0: the processors divided by the ranks, at least 1.
  int threads_per_rank = 0;
  // Processes only. SIGINT and SIGTERM that reach the calling thread are sent on to every rank.
  bool forward_signals = true;
  // Processes only. When a rank has failed, the others have this long to end by themselves (their
  // collectives raise), then get SIGTERM, and SIGKILL five seconds later.
  absl::Duration failure_grace = absl::Seconds(15);
};

struct RankExit {
  int rank = 0;
  int exit_status = 0;  // of a process that exited; 1 for a thread that threw
  int signal = 0;       // that killed the process, or 0
  std::string error;    // the message of what the function threw, "" if nothing
  absl::StatusCode code = absl::StatusCode::kAborted;  // and its code

  bool ok() const { return exit_status == 0 && signal == 0; }
  // "rank 2 was killed by signal 9 (Killed)", "rank 1 failed: INVALID_ARGUMENT: ...".
  std::string ToString() const;
};

struct [[nodiscard]] SpawnResult {
  std::vector<RankExit> ranks;       // by rank
  std::optional<int> first_failure;  // the rank that ended first among those that failed
  int forwarded_signal = 0;          // the last one forwarded, or 0

  bool ok() const { return !first_failure.has_value(); }
  // Throws the first failing rank's error (Aborted, or the code that it threw), naming the rank and
  // then the others that failed.
  void ThrowIfFailed() const;
};

// The function of a rank. A process gets the function by its place in the executable, so it must be
// one (a lambda without captures will do), and must be linked into it statically.
using RankFunction = void (*)(RankContext& context);

// Starts `n` ranks and returns when all have ended. Each rank starts with a thread state of its
// own: device cpu:0, the thread count above; random streams at seed 0 with the dropout stream of
// its rank. A rank that throws ends with exit status 1 after printing the error. For signals to be
// forwarded call it before other threads are started. Throws InvalidArgument, and ResourceExhausted
// when processes cannot be started.
SpawnResult Spawn(int n, RankFunction function, const SpawnOptions& options = {});

// The same for threads, with any callable. `options.mode` is ignored.
SpawnResult SpawnThreads(int n, const std::function<void(RankContext&)>& function,
                         const SpawnOptions& options = {});

// In a process started by Spawn: runs the rank's function and exits. Otherwise returns. Call it
// first thing in main, before flags are parsed.
void MaybeRunSpawnedRank(int argc, char** argv);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_SPAWN_H_
