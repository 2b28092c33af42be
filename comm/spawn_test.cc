// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/spawn.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/store.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::comm {
namespace {

Deadline In(double seconds) { return Deadline::After(absl::Seconds(seconds)); }

void Require(bool condition, absl::string_view text) {
  if (!condition) throw lockstep::InternalError(text);
}

void ReportContext(RankContext& context) {
  Require(context.argument == std::string("argument\0\n", 10), "argument");
  Require(IntraOpThreads() == 3, "threads_per_rank");
  Require(ThreadGenerators().dropout.key.stream ==
              kDropoutStreamBase + static_cast<uint64_t>(context.rank),
          "dropout stream");
  context.store->Add("ranks", 1 << (4 * context.rank), In(10));
  context.store->Set(absl::StrCat("pid/", context.rank), absl::StrCat(getpid()), In(10));
  context.store->Wait({"pid/0", "pid/1", "pid/2"}, In(30));
  const bool same = context.store->Get("pid/0", In(10)) == context.store->Get("pid/1", In(10));
  Require(same == (context.mode == SpawnMode::kThreads), "one process a rank, or one for all");
  Require(context.store->Get("ranks", In(10)) == absl::StrCat(0x111), "each rank once");
}

TEST(SpawnTest, GivesEachRankItsContext) {
  for (const SpawnMode mode : {SpawnMode::kThreads, SpawnMode::kProcesses}) {
    const SpawnResult result =
        Spawn(3, ReportContext,
              {.mode = mode, .argument = std::string("argument\0\n", 10), .threads_per_rank = 3});
    EXPECT_NO_THROW(result.ThrowIfFailed());
    ASSERT_EQ(result.ranks.size(), 3u);
    EXPECT_EQ(result.ranks[2].rank, 2);
  }
}

TEST(SpawnTest, ThreadsTakeAnyCallable) {
  std::atomic<int> sum{0};
  const SpawnResult result = SpawnThreads(4, [&](RankContext& c) { sum += c.rank; });
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(sum.load(), 6);
}

void FailOnOne(RankContext& context) {
  if (context.rank == 1) {
    context.store->Set("failed", "", In(10));
    throw NotFoundError("no such thing");
  }
  if (context.rank == 2) {
    context.store->Wait({"failed"}, In(10));
    throw std::runtime_error("a later failure");
  }
}

TEST(SpawnTest, ReportsErrorsAndTheFirstFailingRank) {
  for (const SpawnMode mode : {SpawnMode::kThreads, SpawnMode::kProcesses}) {
    const SpawnResult result = Spawn(3, FailOnOne, {.mode = mode});
    EXPECT_TRUE(result.ranks[0].ok());
    EXPECT_EQ(result.ranks[1].exit_status, 1);
    EXPECT_EQ(result.ranks[1].error, "no such thing");
    EXPECT_EQ(result.ranks[1].code, absl::StatusCode::kNotFound);
    EXPECT_EQ(result.ranks[2].error, "a later failure");
    ASSERT_TRUE(result.first_failure.has_value());
    try {
      result.ThrowIfFailed();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_TRUE(absl::StrContains(error.message(), "rank 1 failed: no such thing"));
      EXPECT_TRUE(absl::StrContains(error.message(), "rank 2 failed: a later failure"));
    }
  }
}

void ExitOrDie(RankContext& context) {
  if (context.rank == 0) _exit(7);
  context.store->Get("never", Deadline::Infinite());  // until the parent ends it
}

TEST(SpawnTest, StopsTheRestAfterAFailure) {
  const Stopwatch watch;
  const SpawnResult result = Spawn(3, ExitOrDie, {.failure_grace = absl::Milliseconds(100)});
  EXPECT_LT(watch.ElapsedSeconds(), 10);
  EXPECT_EQ(result.first_failure, 0);
  EXPECT_EQ(result.ranks[0].exit_status, 7);
  EXPECT_EQ(result.ranks[0].ToString(), "rank 0 ended with exit status 7");
  EXPECT_EQ(result.ranks[1].signal, SIGTERM);
  EXPECT_EQ(result.ranks[2].ToString(), "rank 2 was killed by signal 15 (Terminated)");
}

void IgnoreTerm(RankContext& context) {
  signal(SIGTERM, SIG_IGN);
  ExitOrDie(context);
}

TEST(SpawnTest, KillsWhatIgnoresTheRequestToStop) {
  const SpawnResult result = Spawn(2, IgnoreTerm, {.failure_grace = absl::Milliseconds(100)});
  EXPECT_EQ(result.ranks[1].signal, SIGKILL);
}

std::atomic<int> g_signals{0};  // of a signal handler in a spawned process

void WaitForSignal(RankContext& context) {
  struct sigaction action = {};
  action.sa_handler = [](int) { ++g_signals; };
  sigaction(SIGTERM, &action, nullptr);
  // Once all are ready, one of them signals the parent's waiting thread: the process.
  context.store->Set(absl::StrCat("ready/", context.rank), "", In(10));
  context.store->Wait({"ready/0", "ready/1"}, In(10));
  if (context.rank == 0) kill(getppid(), SIGTERM);
  const Deadline deadline = In(20);
  while (g_signals.load() == 0 && !deadline.Expired()) absl::SleepFor(absl::Milliseconds(5));
  Require(g_signals.load() == 1, "the signal arrives, once");
}

TEST(SpawnTest, ForwardsSignals) {
  const SpawnResult result = Spawn(2, WaitForSignal);
  EXPECT_NO_THROW(result.ThrowIfFailed());
  EXPECT_EQ(result.forwarded_signal, SIGTERM);
}

void Nested(RankContext& /*context*/) {
  try {
    (void)Spawn(1, Nested);
  } catch (const Error& error) {
    Require(absl::StrContains(error.message(), "MaybeRunSpawnedRank"), error.message());
    return;
  }
  Require(false, "a nested Spawn started");
}

TEST(SpawnTest, DoesNotNest) { EXPECT_NO_THROW(Spawn(1, Nested).ThrowIfFailed()); }

TEST(SpawnTest, RefusesBadArguments) {
  EXPECT_THROW((void)Spawn(0, ReportContext), Error);
  EXPECT_THROW((void)Spawn(-1, ReportContext, {.mode = SpawnMode::kThreads}), Error);
  EXPECT_THROW((void)Spawn(100000, ReportContext), Error);
  EXPECT_THROW((void)Spawn(1, nullptr), Error);
  EXPECT_THROW((void)Spawn(1, ReportContext, {.threads_per_rank = -1}), Error);
  EXPECT_THROW((void)Spawn(1, ReportContext, {.argument = std::string((1 << 20) + 1, 'x')}), Error);
  // A function of a shared library is at another place in another process.
  EXPECT_THROW((void)Spawn(1, reinterpret_cast<RankFunction>(reinterpret_cast<void*>(&getpid))),
               Error);
}

// ---- Orphans ----

// Tells its pid through the descriptor in the argument, and would wait for ever.
void WaitForever(RankContext& context) {
  if (context.rank == 0) prctl(PR_SET_PDEATHSIG, 0);  // the pipe alone must do for this one
  const std::string path = absl::StrCat(context.argument, "/pid", context.rank);
  const int fd = open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  const std::string pid = absl::StrCat(getpid(), "\n");
  Require(write(fd, pid.data(), pid.size()) == static_cast<ssize_t>(pid.size()), "write");
  close(fd);
  for (;;) pause();
}

pid_t ReadPid(const std::string& path, Deadline deadline) {
  for (;;) {
    char text[32] = {};
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0) close(fd);
    int pid = 0;
    if (n > 0 && text[n - 1] == '\n' &&
        absl::SimpleAtoi(absl::string_view(text, static_cast<size_t>(n - 1)), &pid)) {
      return pid;
    }
    if (deadline.Expired()) return -1;
    absl::SleepFor(absl::Milliseconds(5));
  }
}

TEST(OrphanTest, RanksDieWithAParentThatIsKilled) {
  const std::string folder = NewFolder();
  // The parent of the ranks is another run of this program.
  const pid_t parent = fork();
  if (parent == 0) {
    execl("/proc/self/exe", "spawn_test", "--launch", folder.c_str(), nullptr);
    _exit(127);
  }
  std::vector<pid_t> ranks;
  for (const int rank : {0, 1}) {
    ranks.push_back(ReadPid(absl::StrCat(folder, "/pid", rank), In(30)));
    ASSERT_GT(ranks.back(), 0);
  }
  const Stopwatch watch;
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  for (const pid_t rank : ranks) {
    const Deadline deadline = In(20);
    // Gone, or a zombie that this container's init has not collected.
    const auto gone = [rank] {
      if (kill(rank, 0) != 0 && errno == ESRCH) return true;
      char state[256] = {};
      const int fd = open(absl::StrCat("/proc/", rank, "/stat").c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) return true;
      const bool have = read(fd, state, sizeof(state) - 1) > 0;
      close(fd);
      return !have || absl::StrContains(state, ") Z ");
    };
    while (!gone() && !deadline.Expired()) absl::SleepFor(absl::Milliseconds(5));
    EXPECT_TRUE(gone()) << "process " << rank << " lives on";
  }
  EXPECT_LT(watch.ElapsedSeconds(), 10);
}

}  // namespace

int Launch(const std::string& folder) {
  return Spawn(2, WaitForever, {.argument = folder}).ok() ? 0 : 1;
}

}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  if (argc == 3 && std::string(argv[1]) == "--launch") return lockstep::comm::Launch(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
