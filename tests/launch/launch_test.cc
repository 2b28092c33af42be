// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The launcher as a user runs it, on one node, with shell scripts as ranks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/socket.h"
#include "lockstep/tests/launch/test_process.h"

namespace lockstep::launch_test {
namespace {

namespace fs = std::filesystem;

constexpr char kLaunch[] = "tools/launch";

std::vector<std::string> Flags(std::vector<std::string> flags, const std::string& script) {
  flags.insert(flags.end(), {"sh", "-c", script});
  return flags;
}

// Waits for a file, written by a rank with one echo.
std::string Await(const TestFolder& folder, const std::string& name) {
  EXPECT_TRUE(WaitUntil([&] { return Contains(ReadAll(folder / name), "\n"); })) << name;
  return ReadAll(folder / name);
}

TEST(LaunchTest, RanksGetTheirVariables) {
  const TestFolder folder;
  TestProcess process(
      kLaunch,
      Flags({"--nproc=3", "--max_restarts=2"},
            "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "
            "$MASTER_ADDR $LOCKSTEP_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $OTHER; "
            "echo store=$LOCKSTEP_STORE port=$MASTER_PORT; pwd; cat; "
            "echo token=$(cat $LOCKSTEP_TOKEN_FILE) $(stat -L -c %a $LOCKSTEP_TOKEN_FILE); "
            "echo run=$LOCKSTEP_RUN_ID; echo to-stderr >&2; "
            "echo outer=$LOCKSTEP_FLIGHT_RECORDER$TORCHELASTIC_USE_AGENT_STORE"),
      folder,
      {{"OTHER", "kept"},
       {"RANK", "77"},
       {"LOCKSTEP_RENDEZVOUS", "file:///outer"},
       {"LOCKSTEP_FLIGHT_RECORDER", "/outer"},
       {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  ASSERT_EQ(process.Wait(), 0) << process.err();
  std::string store;
  for (const int rank : {0, 1, 2}) {
    const std::string prefix = absl::StrCat("[", rank, "] ");
    const std::vector<std::string> lines = LinesWith(process.out(), prefix);
    ASSERT_EQ(lines.size(), 6u) << process.out();
    EXPECT_EQ(lines[0], absl::StrCat(rank, "/3 ", rank, "/3 0/1 127.0.0.1 0 2 kept"));
    if (rank == 0) store = lines[1];
    EXPECT_EQ(lines[1], store);
    EXPECT_EQ(lines[2], folder.path());
    EXPECT_EQ(lines[3].size(), std::string("token= 600").size() + 64) << lines[3];
    EXPECT_EQ(lines[5], "outer=");
    EXPECT_EQ(LinesWith(process.err(), prefix), std::vector<std::string>{"to-stderr"});
  }
  EXPECT_TRUE(Contains(store, "store=127.0.0.1:"));
  EXPECT_TRUE(folder.NoneLeft());
}

TEST(LaunchTest, TheTokenIsOnNoCommandLine) {
  const TestFolder folder;
  TestProcess process(kLaunch,
                      Flags({"--nproc=1"},
                            "cat $LOCKSTEP_TOKEN_FILE > token; echo > ready; "
                            "while [ ! -e stop ]; do sleep 0.01; done"),
                      folder);
  Await(folder, "ready");
  const std::string token = ReadAll(folder / "token");
  ASSERT_EQ(token.size(), 64u);
  for (const auto& entry : fs::directory_iterator("/proc")) {
    EXPECT_FALSE(Contains(ReadAll(entry.path().string() + "/cmdline"), token)) << entry.path();
  }
  std::ofstream(folder / "stop") << "";
  EXPECT_EQ(process.Wait(), 0);
}

TEST(LaunchTest, TheFirstFailureIsReportedAndTheOthersAreStopped) {
  const TestFolder folder;
  TestProcess process(
      kLaunch,
      Flags({"--nproc=3"},
            "if [ $RANK != 1 ]; then echo up > up$RANK; exec sleep 600; fi; "
            "while [ ! -s up0 -o ! -s up2 ]; do sleep 0.01; done; "
            "for i in $(seq 30); do echo line $i; done; echo the reason >&2; exit 7"),
      folder);
  EXPECT_EQ(process.Wait(), 7);
  const std::string err = process.err();
  for (const char* part :
       {"launch: attempt 0: rank 1 ended with exit status 7, the first to fail here\n",
        "s after it: rank 0 was killed by signal 15 (Terminated)\n",
        "s after it: rank 2 was killed by signal 15 (Terminated)\n", "what rank 1 printed last:\n",
        "launch:   | line 30\n", "launch:   | the reason\n"}) {
    EXPECT_TRUE(Contains(err, part)) << part << " in\n" << err;
  }
  EXPECT_FALSE(Contains(err, "| line 5\n")) << "only the last lines";
  EXPECT_FALSE(Contains(err, "giving up")) << "nothing was said about restarts";
  EXPECT_TRUE(folder.NoneLeft());
}

TEST(LaunchTest, ASignalIsReportedAs128PlusItsNumber) {
  const TestFolder folder;
  TestProcess process(
      kLaunch, Flags({"--nproc=2"}, "[ $RANK = 0 ] && kill -SEGV $$; exec sleep 600"), folder);
  EXPECT_EQ(process.Wait(), 128 + SIGSEGV);
  EXPECT_TRUE(Contains(process.err(), "rank 0 was killed by signal 11 (Segmentation fault)"));
  EXPECT_TRUE(Contains(process.err(), "rank 0 printed nothing"));
}

TEST(LaunchTest, RestartsAllRanksUntilOneAttemptEndsWell) {
  const TestFolder folder;
  TestProcess process(
      kLaunch,
      Flags({"--nproc=2", "--max_restarts=3", "--log_dir=logs"},
            "echo attempt $LOCKSTEP_RESTART_COUNT $LOCKSTEP_STORE; echo err $RANK >&2; "
            "[ $RANK = 1 -a $LOCKSTEP_RESTART_COUNT -lt 2 ] && exit $((10 + "
            "LOCKSTEP_RESTART_COUNT)); "
            "[ $LOCKSTEP_RESTART_COUNT = 2 ] || exec sleep 600; echo $RANK ends; "
            "echo records $LOCKSTEP_FLIGHT_RECORDER"),
      folder);
  ASSERT_EQ(process.Wait(), 0) << process.err();
  EXPECT_TRUE(Contains(process.err(), "attempt 0: rank 1 ended with exit status 10"));
  EXPECT_TRUE(Contains(process.err(), "starting all ranks again: attempt 2"));
  EXPECT_TRUE(Contains(process.err(), "attempt 1: rank 1 ended with exit status 11"));
  // Files per rank and attempt, and another store for each attempt.
  std::vector<std::string> runs;
  for (const auto& run : fs::directory_iterator(folder / "logs")) runs.push_back(run.path());
  ASSERT_EQ(runs.size(), 1u);
  std::vector<std::string> stores;
  for (const int attempt : {0, 1, 2}) {
    const std::string out = ReadAll(absl::StrCat(runs[0], "/attempt-", attempt, "/rank-1.out"));
    const std::vector<std::string> lines = LinesWith(out, absl::StrCat("attempt ", attempt, " "));
    ASSERT_EQ(lines.size(), 1u) << out;
    EXPECT_EQ(std::count(stores.begin(), stores.end(), lines[0]), 0) << lines[0];
    stores.push_back(lines[0]);
    EXPECT_EQ(ReadAll(absl::StrCat(runs[0], "/attempt-", attempt, "/rank-1.err")), "err 1\n");
  }
  EXPECT_TRUE(
      Contains(ReadAll(runs[0] + "/attempt-2/rank-0.out"), "records " + runs[0] + "/attempt-2\n"));
  EXPECT_TRUE(Contains(ReadAll(runs[0] + "/attempt-2/rank-0.out"), "0 ends\n"));
  EXPECT_FALSE(fs::exists(runs[0] + "/attempt-3"));
}

TEST(LaunchTest, WithoutRestartsLeftItReportsEveryAttempt) {
  const TestFolder folder;
  TestProcess process(
      kLaunch,
      Flags({"--nproc=2", "--max_restarts=2"},
            "[ $RANK = 0 ] && exit $((20 + LOCKSTEP_RESTART_COUNT)); exec sleep 600"),
      folder);
  EXPECT_EQ(process.Wait(), 22);
  EXPECT_TRUE(Contains(process.err(),
                       "launch: giving up after 3 attempts:\n"
                       "launch:   attempt 0: rank 0 ended with exit status 20\n"
                       "launch:   attempt 1: rank 0 ended with exit status 21\n"
                       "launch:   attempt 2: rank 0 ended with exit status 22\n"))
      << process.err();
}

TEST(LaunchTest, ARankThatEndsWellEarlyDoesNotStopTheOthers) {
  const TestFolder folder;
  TestProcess process(kLaunch,
                      Flags({"--nproc=3"},
                            "[ $RANK = 0 ] && exit 0; while [ ! -e go ]; do sleep 0.01; done; "
                            "echo $RANK done"),
                      folder);
  ASSERT_TRUE(WaitUntil([&] { return folder.Processes("rank_keeper").size() == 2; }));
  std::ofstream(folder / "go") << "";
  EXPECT_EQ(process.Wait(), 0) << process.err();
  EXPECT_TRUE(Contains(process.out(), "[1] 1 done\n"));
  EXPECT_TRUE(Contains(process.out(), "[2] 2 done\n"));
}

TEST(LaunchTest, ARankThatIgnoresSigtermIsKilled) {
  const TestFolder folder;
  TestProcess process(
      kLaunch,
      Flags({"--nproc=2", "--stop_grace=300ms"},
            "if [ $RANK = 0 ]; then trap '' TERM; echo > deaf; while :; do sleep 0.01; done; fi; "
            "while [ ! -e deaf ]; do sleep 0.01; done; exit 3"),
      folder);
  EXPECT_EQ(process.Wait(), 3);
  EXPECT_TRUE(Contains(process.err(), "rank 0 was killed by signal 9 (Killed)")) << process.err();
  EXPECT_TRUE(folder.NoneLeft());
}

TEST(LaunchTest, GrandchildrenGoWithTheirRank) {
  const TestFolder folder;
  // In sessions of their own, holding the ranks' output open, deaf to SIGTERM.
  const std::string grandchild =
      "setsid sh -c 'trap \"\" TERM HUP; echo > grandchild$RANK; while :; do sleep 0.01; done' & "
      "while [ ! -e grandchild$RANK ]; do sleep 0.01; done; ";
  for (const char* end : {"exit 0", "kill -9 $$", "exit 5"}) {
    TestProcess process(kLaunch, Flags({"--nproc=2", "--stop_grace=300ms"}, grandchild + end),
                        folder);
    EXPECT_NE(process.Wait(), -1) << end;
    EXPECT_EQ(folder.Running(), 0) << end;
  }
}

TEST(LaunchTest, SignalsAreForwardedOnce) {
  for (const int number : {SIGINT, SIGTERM}) {
    const TestFolder folder;
    TestProcess process(
        kLaunch,
        Flags({"--nproc=2", "--max_restarts=5"},
              "trap 'echo got >> got$RANK; [ $RANK = 0 ] || exit 0; sleep 0.3; exit 0' INT TERM; "
              "echo > up$RANK; while :; do sleep 0.01; done"),
        folder);
    Await(folder, "up0");
    Await(folder, "up1");
    process.Signal(number);
    EXPECT_EQ(process.Wait(), 0) << process.err();
    EXPECT_EQ(ReadAll(folder / "got0"), "got\n");
    EXPECT_EQ(ReadAll(folder / "got1"), "got\n");
    EXPECT_TRUE(Contains(process.err(), absl::StrCat("got signal ", number))) << process.err();
    EXPECT_TRUE(folder.NoneLeft());
  }
}

TEST(LaunchTest, AStoppedJobIsNotRestartedAndGivesTheRanksStatus) {
  const TestFolder folder;
  TestProcess process(
      kLaunch, Flags({"--nproc=2", "--max_restarts=5"}, "echo > up$RANK; exec sleep 600"), folder);
  Await(folder, "up0");
  Await(folder, "up1");
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM);
  EXPECT_FALSE(Contains(process.err(), "again")) << process.err();
}

// Nobody reads what the ranks print, as when a pager waits for its user.
TEST(LaunchTest, AStalledReaderDoesNotHoldUpASignal) {
  const TestFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const comm::UniqueFd reader(open(pipe.c_str(), O_RDWR | O_CLOEXEC));
  TestProcess process("/bin/sh",
                      {"-c", absl::StrCat("exec ", ProgramPath(kLaunch),
                                          " --nproc=2 sh -c 'while :; do echo yes; done' >pipe")},
                      folder);
  ASSERT_TRUE(WaitUntil([&] {
    int bytes = 0;
    return ioctl(reader.get(), FIONREAD, &bytes) == 0 && bytes > 32 << 10;
  })) << process.err();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM);
  EXPECT_TRUE(Contains(process.err(), "got signal 15")) << process.err();
  EXPECT_TRUE(folder.NoneLeft());
}

TEST(LaunchTest, AKilledLauncherLeavesNothing) {
  const TestFolder folder;
  TestProcess process(
      kLaunch,
      Flags({"--nproc=3"},
            "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM HUP; echo > up$RANK; sleep 600' & "
            "wait; sleep 600"),
      folder);
  for (const int rank : {0, 1, 2}) Await(folder, absl::StrCat("up", rank));
  EXPECT_GE(folder.Running(), 1 + 3 * 3);
  const Stopwatch watch;
  process.Signal(SIGKILL);
  EXPECT_EQ(process.Wait(), 1000 + SIGKILL);
  EXPECT_TRUE(folder.NoneLeft()) << folder.Running();
  EXPECT_LT(watch.ElapsedSeconds(), 20);
}

TEST(LaunchTest, AKilledKeeperIsAFailureThatLeavesNothing) {
  const TestFolder folder;
  TestProcess process(
      kLaunch, Flags({"--nproc=2"}, "setsid sh -c 'echo > up$RANK; sleep 600' & wait; sleep 600"),
      folder);
  for (const int rank : {0, 1}) Await(folder, absl::StrCat("up", rank));
  const std::vector<pid_t> keepers = folder.Processes("rank_keeper");
  ASSERT_EQ(keepers.size(), 2u);
  kill(keepers[1], SIGKILL);
  const Stopwatch watch;
  EXPECT_EQ(process.Wait(), 128 + SIGKILL);
  EXPECT_LT(watch.ElapsedSeconds(), 20) << "what is left is asked to stop, not only killed";
  EXPECT_TRUE(Contains(process.err(), "was killed by signal 9 (Killed), the first to fail"))
      << process.err();
  EXPECT_TRUE(folder.NoneLeft());
}

TEST(LaunchTest, ManyLinesAreCompleteAndInOrder) {
  const TestFolder folder;
  TestProcess process(kLaunch,
                      Flags({"--nproc=2", "--log_dir=" + (folder / "logs")},
                            "seq -f \"$RANK line %.0f\" 100000; seq 50000 >&2; printf end"),
                      folder);
  ASSERT_EQ(process.Wait(), 0) << process.err().substr(0, 1000);
  std::string run;
  for (const auto& entry : fs::directory_iterator(folder / "logs")) run = entry.path();
  for (const int rank : {0, 1}) {
    std::string expected;
    for (int i = 1; i <= 100000; ++i) absl::StrAppend(&expected, rank, " line ", i, "\n");
    std::string seen;
    for (const std::string& line : LinesWith(process.out(), absl::StrCat("[", rank, "] "))) {
      absl::StrAppend(&seen, line, "\n");
    }
    EXPECT_TRUE(seen == expected + "end\n");
    EXPECT_TRUE(ReadAll(absl::StrCat(run, "/attempt-0/rank-", rank, ".out")) == expected + "end");
    EXPECT_EQ(LinesWith(process.err(), absl::StrCat("[", rank, "] ")).size(), 50000u);
  }
}

TEST(LaunchTest, GoesOnWhenItsOutputIsClosed) {
  const TestFolder folder;
  TestProcess process("/bin/sh",
                      {"-c", absl::StrCat(ProgramPath(kLaunch),
                                          " --nproc=1 sh -c 'seq 100000; echo > ended' | head -1; "
                                          "while [ ! -e ended ]; do sleep 0.01; done")},
                      folder);
  EXPECT_EQ(process.Wait(), 0) << process.err();
  EXPECT_EQ(process.out(), "[0] 1\n");
  EXPECT_TRUE(folder.NoneLeft());
}

TEST(LaunchTest, WrongInputIsOneLineAndStatusOne) {
  const TestFolder folder;
  std::ofstream(folder / "public-token") << "token";
  fs::permissions(folder / "public-token", fs::perms::all);
  std::ofstream(folder / "file") << "";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "no program is given"},
      {{"--nproc=0", "true"}, "--nproc=0"},
      {{"no-such-program"}, "not in PATH"},
      {{"./no-such-program"}, "no executable file"},
      {{"--nnodes=2", "true"}, "--nnodes=2"},
      {{"--token_file=none", "true"}, "cannot open " + (folder / "none")},
      {{"--token_file=public-token", "true"}, "chmod 600"},
      {{"--log_dir=file/logs", "true"}, "--log_dir: cannot write " + (folder / "file/logs")},
      {{"--rendezvous=192.0.2.1:29400", "true"}, "192.0.2.1"},
      {{"--rendezvous=file:///no/such/folder", "true"}, "/no/such/folder"},
  };
  for (const auto& [arguments, text] : cases) {
    TestProcess process(kLaunch, arguments, folder);
    EXPECT_EQ(process.Wait(), 1) << text;
    const std::vector<std::string> lines = absl::StrSplit(process.err(), '\n', absl::SkipEmpty());
    EXPECT_EQ(lines.size(), 1u) << process.err();
    EXPECT_TRUE(Contains(process.err(), text)) << process.err();
    EXPECT_EQ(process.err().find("launch: "), 0u);
  }
  EXPECT_TRUE(folder.NoneLeft());
  TestProcess help(kLaunch, {"--help"}, folder);
  EXPECT_EQ(help.Wait(), 0);
  EXPECT_TRUE(Contains(help.out(), "--max_restarts=0"));
  TestProcess lost("/bin/sh", {"-c", ProgramPath(kLaunch) + " --help >/dev/full"}, folder);
  EXPECT_EQ(lost.Wait(), 1);
  EXPECT_TRUE(Contains(lost.err(), "launch: cannot write to stdout: ")) << lost.err();
}

TEST(LaunchTest, AFolderIsAPlaceToMeetToo) {
  const TestFolder folder;
  const std::vector<std::string> arguments =
      Flags({"--nproc=1", "--max_restarts=1", "--rendezvous=file://" + (folder / "meet")},
            "echo $LOCKSTEP_RENDEZVOUS $LOCKSTEP_STORE; exit $((1 - LOCKSTEP_RESTART_COUNT))");
  TestProcess process(kLaunch, arguments, folder);
  EXPECT_EQ(process.Wait(), 0) << process.err();
  EXPECT_EQ(process.out(), absl::StrCat("[0] file://", folder / "meet", "/attempt-0\n[0] file://",
                                        folder / "meet", "/attempt-1\n"));
  TestProcess again(kLaunch, arguments, folder);
  EXPECT_EQ(again.Wait(), 1);
  EXPECT_TRUE(Contains(again.err(), folder / "meet")) << again.err();
}

}  // namespace
}  // namespace lockstep::launch_test
