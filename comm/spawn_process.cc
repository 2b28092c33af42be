// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/child_process.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/spawn_internal.h"

namespace lockstep::comm {
namespace {

constexpr absl::string_view kMarker = "--lockstep_spawned_rank=";
constexpr absl::string_view kArgumentKey = "spawn/argument";
constexpr int kOrphanStatus = 125;
constexpr absl::Duration kKillAfterTerm = absl::Seconds(5);

std::string ErrorKey(int rank) { return absl::StrCat("spawn/error/", rank); }

// The same code has the same distance to this function in every run of one executable.
int64_t FunctionOffset(RankFunction function) {
  const auto anchor = reinterpret_cast<intptr_t>(&MaybeRunSpawnedRank);
  return reinterpret_cast<intptr_t>(function) - anchor;
}

RankFunction FunctionAt(int64_t offset) {
  const auto anchor = reinterpret_cast<intptr_t>(&MaybeRunSpawnedRank);
  return reinterpret_cast<RankFunction>(anchor + offset);
}

void CheckFunction(RankFunction function) {
  Dl_info ours = {};
  Dl_info theirs = {};
  if (dladdr(reinterpret_cast<void*>(&MaybeRunSpawnedRank), &ours) == 0 ||
      dladdr(reinterpret_cast<void*>(function), &theirs) == 0 ||
      ours.dli_fbase != theirs.dli_fbase) {
    throw InvalidArgumentError(
        "Spawn: the rank's function is not linked statically into this executable: another process "
        "could not find it");
  }
}

// A spawned process that reaches Spawn would start itself again, and again.
void CheckNotSpawned() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string arguments((std::istreambuf_iterator<char>(file)),
                              std::istreambuf_iterator<char>());
  for (const absl::string_view argument : absl::StrSplit(arguments, '\0')) {
    if (absl::StartsWith(argument, kMarker)) {
      throw FailedPreconditionError(
          "Spawn: called in a spawned process: call MaybeRunSpawnedRank(argc, argv) first thing in "
          "main, and do not nest Spawn");
    }
  }
}

// ---- Parent ----

struct RankProcess {
  int rank = 0;
  ChildProcess process;
};

class ProcessJob {
 public:
  ProcessJob(int n, RankFunction function, const SpawnOptions& options)
      : options_(options),
        signals_(options.forward_signals ? std::vector<int>{SIGINT, SIGTERM} : std::vector<int>{}),
        server_({.listen = false}) {
    int lifeline[2];
    if (pipe2(lifeline, O_CLOEXEC) != 0) {
      throw ResourceExhaustedError(absl::StrCat("Spawn: pipe: ", ErrnoText(errno)));
    }
    lifeline_read_ = UniqueFd(lifeline[0]);
    lifeline_write_ = UniqueFd(lifeline[1]);
    server_.local()->Set(kArgumentKey, options.argument, Deadline::After(absl::Seconds(10)));
    result_.ranks.resize(static_cast<size_t>(n));
    for (int rank = 0; rank < n; ++rank) Start(rank, n, function);
    lifeline_read_.reset();
  }

  // Nothing is left behind when starting fails halfway.
  ~ProcessJob() {
    KillAll(SIGKILL);
    for (RankProcess& child : children_) child.process.WaitAndReap();
  }

  SpawnResult Wait() {
    while (Running() > 0) {
      std::vector<pollfd> entries = {{signals_.fd(), POLLIN, 0}};
      for (const RankProcess& child : children_) {
        entries.push_back({child.process.pidfd(), POLLIN, 0});
      }
      poll(entries.data(), entries.size(), NextStop().RemainingPollMilliseconds());
      if (entries[0].revents != 0) Forward();
      for (size_t i = 0; i < children_.size(); ++i) {
        if (entries[i + 1].revents != 0) Reap(children_[i]);
      }
      StopSurvivors();
    }
    return std::move(result_);
  }

 private:
  void Start(int rank, int n, RankFunction function) {
    auto [ours, theirs] = MakeSocketPair();
    server_.Adopt(ours.release());
    const int threads = options_.threads_per_rank;
    std::string marker =
        absl::StrCat(kMarker, rank, ",", n, ",", theirs.get(), ",", lifeline_read_.get(), ",",
                     threads, ",", FunctionOffset(function));
    children_.push_back({rank, StartChild(absl::StrCat("Spawn of rank ", rank),
                                          {.program = "/proc/self/exe",
                                           .arguments = {program_invocation_name, marker},
                                           .inherited = {theirs.get(), lifeline_read_.get()},
                                           .signal_mask = signals_.saved_mask()})});
  }

  int64_t Running() const {
    return std::count_if(children_.begin(), children_.end(),
                         [](const RankProcess& child) { return child.process.running(); });
  }

  void KillAll(int signal) {
    for (const RankProcess& child : children_) child.process.Signal(signal);
  }

  void Forward() {
    for (int signal = signals_.Next(); signal != 0; signal = signals_.Next()) {
      result_.forwarded_signal = signal;
      KillAll(signal);
    }
  }

  void Reap(RankProcess& child) {
    const std::optional<int> status = child.process.Reap();
    if (!status.has_value()) return;
    RankExit& exit = result_.ranks[static_cast<size_t>(child.rank)];
    exit.rank = child.rank;
    if (WIFSIGNALED(*status)) exit.signal = WTERMSIG(*status);
    if (WIFEXITED(*status)) exit.exit_status = WEXITSTATUS(*status);
    if (exit.ok()) return;
    if (exit.exit_status == 1) ReadError(exit);
    if (result_.first_failure.has_value()) return;
    result_.first_failure = child.rank;
    terminate_at_ = Deadline::After(options_.failure_grace);
  }

  void ReadError(RankExit& exit) {
    try {
      const std::string text =
          server_.local()->Get(ErrorKey(exit.rank), Deadline::After(absl::ZeroDuration()));
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(text, absl::MaxSplits('\n', 1));
      int code = 0;
      if (absl::SimpleAtoi(parts.first, &code)) exit.code = static_cast<absl::StatusCode>(code);
      exit.error = parts.second;
    } catch (const Error&) {
      // It ended with status 1 without throwing: there is nothing to add.
    }
  }

  Deadline NextStop() const { return std::min(terminate_at_, kill_at_); }

  void StopSurvivors() {
    if (terminate_at_.Expired()) {
      KillAll(SIGTERM);
      terminate_at_ = Deadline::Infinite();
      kill_at_ = Deadline::After(kKillAfterTerm);
    }
    if (kill_at_.Expired()) {
      KillAll(SIGKILL);
      kill_at_ = Deadline::Infinite();
    }
  }

  const SpawnOptions& options_;
  SignalCatcher signals_;  // before the server, whose thread must not take the signals
  StoreServer server_;
  UniqueFd lifeline_read_;
  UniqueFd lifeline_write_;  // never written: the ranks see it close when this process ends
  std::vector<RankProcess> children_;
  Deadline terminate_at_;
  Deadline kill_at_;
  SpawnResult result_;
};

// ---- Child ----

// Ends this process when the parent does, should the kernel's signal not reach it.
void WatchLifeline(int lifeline) {
  sigset_t all;
  sigset_t saved;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &saved);  // handlers run on the program's own threads
  std::thread([lifeline] {
    pollfd entry = {lifeline, POLLIN, 0};
    while (poll(&entry, 1, -1) < 0 && errno == EINTR) {
    }
    _exit(kOrphanStatus);
  }).detach();
  pthread_sigmask(SIG_SETMASK, &saved, nullptr);
}

[[noreturn]] void RunSpawnedRank(absl::string_view description) {
  std::vector<int64_t> numbers;
  for (const absl::string_view part : absl::StrSplit(description, ',')) {
    numbers.push_back(0);
    if (!absl::SimpleAtoi(part, &numbers.back())) numbers.clear();
  }
  if (numbers.size() != 6) {
    std::fprintf(stderr, "%.*s is for processes started by Spawn only\n",
                 static_cast<int>(kMarker.size()), kMarker.data());
    std::_Exit(2);
  }
  const int store_fd = static_cast<int>(numbers[2]);
  const int lifeline = static_cast<int>(numbers[3]);
  fcntl(store_fd, F_SETFD, FD_CLOEXEC);
  fcntl(lifeline, F_SETFD, FD_CLOEXEC);
  WatchLifeline(lifeline);

  int status = 1;
  {
    RankContext context;
    context.rank = static_cast<int>(numbers[0]);
    context.world_size = static_cast<int>(numbers[1]);
    context.mode = SpawnMode::kProcesses;
    context.store = std::make_shared<StoreClient>(store_fd, "store of the parent process");
    const RankExit exit = internal::RunRank(
        [&](RankContext& c) {
          c.argument = c.store->Get(kArgumentKey, Deadline::After(absl::Seconds(30)));
          FunctionAt(numbers[5])(c);
        },
        context, static_cast<int>(numbers[4]));
    status = exit.exit_status;
    if (status != 0) {
      try {
        context.store->Set(
            ErrorKey(exit.rank),
            absl::StrCat(static_cast<int>(exit.code), "\n", exit.error.substr(0, 64 << 10)),
            Deadline::After(absl::Seconds(5)));
      } catch (const Error&) {
        // The parent is gone; the message has been printed.
      }
    }
  }
  std::exit(status);
}

}  // namespace

namespace internal {

SpawnResult SpawnProcesses(int n, RankFunction function, const SpawnOptions& options) {
  CheckFunction(function);
  CheckNotSpawned();
  return ProcessJob(n, function, options).Wait();
}

}  // namespace internal

void MaybeRunSpawnedRank(int argc, char** argv) {
  if (argc < 2) return;
  absl::string_view argument = argv[1];
  if (absl::ConsumePrefix(&argument, kMarker)) RunSpawnedRank(argument);
}

}  // namespace lockstep::comm
