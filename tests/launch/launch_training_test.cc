// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A training under the launcher: killed in the middle, it ends with the same weights, bit for bit.
#include <gtest/gtest.h>
#include <signal.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/tests/launch/test_process.h"

namespace lockstep::launch_test {
namespace {

namespace fs = std::filesystem;

constexpr char kLaunch[] = "tools/launch";
constexpr char kTrain[] = "examples/train_gpt";
constexpr int kSteps = 400;

constexpr char kFlightRecorder[] = "tools/flight_recorder";

// A training of a few seconds on 4 ranks that keeps a state every 50 steps.
std::vector<std::string> Training(std::vector<std::string> launcher_flags, const std::string& out) {
  std::vector<std::string> arguments = std::move(launcher_flags);
  const std::vector<std::string> training = {
      ProgramPath(kTrain), "--data=text.txt", "--layers=1",  "--heads=2",
      "--width=16",        "--block=16",      "--batch=8",   absl::StrCat("--steps=", kSteps),
      "--save_every=50",   "--resume=auto",   "--out=" + out};
  arguments.insert(arguments.end(), training.begin(), training.end());
  return arguments;
}

std::string StatePath(const TestFolder& folder, const std::string& out, int step) {
  std::string digits = absl::StrCat(step);
  digits.insert(0, 8 - digits.size(), '0');
  return folder / absl::StrCat(out, "/step-", digits);
}

void ExpectSameStates(const TestFolder& folder, const std::string& a, const std::string& b) {
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
    const std::string content = ReadAll(StatePath(folder, a, kSteps) + file);
    EXPECT_FALSE(content.empty()) << a << file;
    EXPECT_TRUE(content == ReadAll(StatePath(folder, b, kSteps) + file)) << b << file;
  }
}

// The processes that train, not their keepers.
std::vector<pid_t> Ranks(const TestFolder& folder, const std::string& out) {
  std::vector<pid_t> ranks;
  for (const pid_t pid : folder.Processes("--out=" + out)) {
    const std::string command = ReadAll(absl::StrCat("/proc/", pid, "/cmdline"));
    if (!Contains(command, "rank_keeper") && !Contains(command, "tools/launch"))
      ranks.push_back(pid);
  }
  return ranks;
}

TEST(LaunchTrainingTest, AKilledRankCostsNothingButTime) {
  const TestFolder folder;
  WriteTrainingText(folder);
  TestProcess whole(kLaunch, Training({"--nproc=4"}, "whole"), folder);
  ASSERT_EQ(whole.Wait(), 0) << whole.err();
  EXPECT_TRUE(Contains(whole.out(), "[0] strategy: ddp, 4 ranks of ")) << whole.out();

  TestProcess killed(kLaunch, Training({"--nproc=4", "--max_restarts=3"}, "killed"), folder);
  // Twice: once before any state is published, and once after one.
  ASSERT_TRUE(killed.WaitForOut("[0] states: ")) << killed.err();
  std::vector<pid_t> ranks = Ranks(folder, "killed");
  ASSERT_EQ(ranks.size(), 4u);
  kill(ranks[2], SIGKILL);
  ASSERT_TRUE(killed.WaitForErr("starting all ranks again: attempt 1")) << killed.err();
  ASSERT_TRUE(WaitUntil([&] { return fs::exists(StatePath(folder, "killed", 50)); }))
      << killed.err();
  ranks = Ranks(folder, "killed");
  ASSERT_EQ(ranks.size(), 4u);
  kill(ranks[0], SIGKILL);
  ASSERT_EQ(killed.Wait(), 0) << killed.err();
  EXPECT_TRUE(Contains(killed.err(), "starting all ranks again: attempt 2")) << killed.err();
  EXPECT_TRUE(Contains(killed.err(), "was killed by signal 9 (Killed), the first to fail here"));
  EXPECT_TRUE(Contains(killed.out(), "[0] resuming: ")) << killed.out();
  ExpectSameStates(folder, "whole", "killed");
  EXPECT_TRUE(folder.NoneLeft());
}

// Kills rank 1 when the ranks of an attempt have begun.
void KillRankOne(const TestFolder& folder, const std::string& out) {
  for (const pid_t pid : Ranks(folder, out)) {
    if (Contains(ReadAll(absl::StrCat("/proc/", pid, "/environ")), std::string("\0RANK=1\0", 8))) {
      kill(pid, SIGKILL);
    }
  }
}

// What //tools:flight_recorder says about the records in a folder.
std::string FlightReport(const TestFolder& folder, const std::string& records) {
  TestProcess tool(kFlightRecorder, {records}, folder);
  EXPECT_EQ(tool.Wait(), 0) << tool.err();
  return tool.out();
}

// Each attempt's in the folder of its logs.
TEST(LaunchTrainingTest, TheFlightRecorderSaysWhoWasLost) {
  const TestFolder folder;
  WriteTrainingText(folder);
  std::vector<std::string> arguments =
      Training({"--nproc=2", "--max_restarts=1", "--log_dir=logs"}, "run");
  arguments.push_back("--steps=1000000");
  TestProcess process(kLaunch, arguments, folder);
  ASSERT_TRUE(process.WaitForOut("[0] step ")) << process.err();
  KillRankOne(folder, "run");
  ASSERT_TRUE(process.WaitForErr("starting all ranks again: attempt 1")) << process.err();
  std::vector<std::string> runs;
  for (const auto& run : fs::directory_iterator(folder / "logs")) runs.push_back(run.path());
  ASSERT_EQ(runs.size(), 1u);
  ASSERT_TRUE(WaitUntil([&] {
    return Contains(ReadAll(runs[0] + "/attempt-1/rank-0.out"), "step ");
  })) << process.err();
  EXPECT_FALSE(fs::exists(runs[0] + "/attempt-1/world.rank0.json")) << "nothing is wrong yet";
  KillRankOne(folder, "run");
  EXPECT_NE(process.Wait(), 0);
  for (const char* attempt : {"/attempt-0", "/attempt-1"}) {
    const std::string report = FlightReport(folder, runs[0] + attempt);
    EXPECT_TRUE(Contains(report, "group \"world\"")) << report;
    EXPECT_TRUE(Contains(report, "2 ranks\n  error UNAVAILABLE on rank 0: ")) << report;
    EXPECT_TRUE(Contains(report, "  no file of rank 1: died, or did not notice\n")) << report;
  }
  EXPECT_TRUE(folder.NoneLeft());
}

TEST(LaunchTrainingTest, TheFlagNamesAnotherFolderForFlightRecords) {
  const TestFolder folder;
  WriteTrainingText(folder);
  std::vector<std::string> arguments = Training({"--nproc=2"}, "run");
  arguments.push_back("--steps=1000000");
  arguments.push_back("--flight_recorder=records/job");
  TestProcess process(kLaunch, arguments, folder);
  ASSERT_TRUE(process.WaitForOut("[0] step ")) << process.err();
  KillRankOne(folder, "run");
  EXPECT_NE(process.Wait(), 0);
  const std::string report = FlightReport(folder, "records/job/attempt-0");
  EXPECT_TRUE(Contains(report, "error UNAVAILABLE on rank 0: ")) << report;
}

TEST(LaunchTrainingTest, ARestartThatThrowsTrainingAwayIsWarnedOf) {
  const TestFolder folder;
  WriteTrainingText(folder);
  TestProcess process(kLaunch,
                      {"--nproc=2", "--max_restarts=1", ProgramPath(kTrain), "--data=text.txt",
                       "--layers=1", "--heads=2", "--width=16", "--block=16", "--batch=8",
                       "--steps=200", "--save_every=20", "--threads_per_rank=1"},
                      folder);
  ASSERT_TRUE(WaitUntil([&] { return fs::exists(StatePath(folder, "train_gpt_out/run-1", 20)); }))
      << process.err();
  const std::vector<pid_t> ranks = [&] {
    std::vector<pid_t> all;
    for (const pid_t pid : folder.Processes("--threads_per_rank=1")) {
      const std::string command = ReadAll(absl::StrCat("/proc/", pid, "/cmdline"));
      if (!Contains(command, "rank_keeper") && !Contains(command, "tools/launch")) {
        all.push_back(pid);
      }
    }
    return all;
  }();
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  EXPECT_EQ(process.Wait(), 0) << process.err();
  const std::vector<std::string> lines = LinesWith(process.err(), "[0] train_gpt: warning: ");
  ASSERT_EQ(lines.size(), 1u) << process.err();
  EXPECT_TRUE(Contains(lines[0], "restart 1 begins from step 0 in "));
  EXPECT_TRUE(Contains(lines[0], "train_gpt_out/run-2"));
  EXPECT_TRUE(Contains(lines[0], "--resume=auto --out=" + (folder / "train_gpt_out/run-1")))
      << lines[0];
}

TEST(LaunchTrainingTest, AKilledLauncherLeavesNoRank) {
  const TestFolder folder;
  WriteTrainingText(folder);
  TestProcess process(kLaunch, Training({"--nproc=4"}, "run"), folder);
  ASSERT_TRUE(process.WaitForOut("[0] states: ")) << process.err();
  process.Signal(SIGKILL);
  EXPECT_EQ(process.Wait(), 1000 + SIGKILL);
  EXPECT_TRUE(folder.NoneLeft());
}

TEST(LaunchTrainingTest, ASignalToTheLauncherSavesOnAllRanks) {
  const TestFolder folder;
  WriteTrainingText(folder);
  std::vector<std::string> arguments = Training({"--nproc=2", "--max_restarts=3"}, "run");
  arguments.push_back("--steps=1000000");
  TestProcess process(kLaunch, arguments, folder);
  ASSERT_TRUE(process.WaitForOut("[0] step 100/")) << process.err();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0) << process.err();
  EXPECT_TRUE(Contains(process.out(), "[0] stopped by a signal")) << process.out();
  EXPECT_TRUE(folder.NoneLeft());
}

TEST(LaunchTrainingTest, TheRanksSayWhatIsWrongOnce) {
  const TestFolder folder;
  WriteTrainingText(folder);
  std::vector<std::string> arguments = Training({"--nproc=2"}, "run");
  arguments.push_back("--ranks=3");
  TestProcess process(kLaunch, arguments, folder);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_TRUE(Contains(process.err(), "--ranks=3: a launcher has started 2 ranks"))
      << process.err();
  // The launcher reports the rank whose reason it is.
  EXPECT_TRUE(Contains(process.err(), "rank 0 ended with exit status 1, the first to fail here"))
      << process.err();
}

// Two launchers, as on two nodes that happen to be this host.
TEST(LaunchTrainingTest, TwoNodesRestartTogether) {
  const TestFolder folder;
  WriteTrainingText(folder);
  TestProcess whole(kLaunch, Training({"--nproc=4"}, "whole"), folder);
  ASSERT_EQ(whole.Wait(), 0) << whole.err();
  const auto node = [&](int rank) {
    std::vector<std::string> arguments =
        Training({"--nnodes=2", absl::StrCat("--node_rank=", rank), "--nproc=2", "--max_restarts=2",
                  "--rendezvous=file://" + (folder / "meet")},
                 "two");
    arguments.push_back("--backend=shm");
    return arguments;
  };
  TestProcess first(kLaunch, node(0), folder);
  TestProcess second(kLaunch, node(1), folder);
  ASSERT_TRUE(first.WaitForOut("[0] states: ")) << first.err() << second.err();
  const std::vector<pid_t> ranks = Ranks(folder, "two");
  ASSERT_EQ(ranks.size(), 4u);
  for (const pid_t pid : ranks) {
    if (Contains(ReadAll(absl::StrCat("/proc/", pid, "/environ")), std::string("\0RANK=3\0", 8))) {
      kill(pid, SIGKILL);
    }
  }
  EXPECT_EQ(first.Wait(), 0) << first.err();
  EXPECT_EQ(second.Wait(), 0) << second.err();
  for (const TestProcess* process : {&first, &second}) {
    EXPECT_TRUE(Contains(process->err(), "starting all ranks again: attempt 1")) << process->err();
  }
  EXPECT_TRUE(Contains(second.err(), "rank 3 was killed by signal 9")) << second.err();
  ExpectSameStates(folder, "whole", "two");
  EXPECT_TRUE(folder.NoneLeft());
}

}  // namespace
}  // namespace lockstep::launch_test
