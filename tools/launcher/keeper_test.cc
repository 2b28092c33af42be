// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Every test ends with a look for what may have been left: processes inherit a variable.
#include "lockstep/tools/launcher/keeper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/comm/socket.h"
#include "lockstep/tools/launcher/process_tree.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

class KeeperTest : public testing::Test {
 protected:
  void SetUp() override { folder_ = NewFolder(); }

  // Processes of this test that are still there (the environment of a zombie is empty).
  int Running() const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      count += absl::StrContains(ReadAll("/proc/" + name + "/environ"), Mark());
    }
    return count;
  }

  void ExpectNoneLeft() const {
    const Deadline deadline = Deadline::After(absl::Seconds(20));
    while (Running() > 0 && !deadline.Expired()) absl::SleepFor(absl::Milliseconds(5));
    EXPECT_EQ(Running(), 0);
  }

  KeptOptions Shell(const std::string& command, absl::Duration grace = absl::Seconds(30)) const {
    return {.program = "/bin/sh",
            .arguments = {"sh", "-c", command},
            .environment = {Mark(), "PATH=/usr/bin:/bin"},
            .folder = folder_,
            .grace = grace};
  }

  static void ReadUntil(KeptProcess& process, bool (*done)(const KeptProcess&)) {
    const Deadline deadline = Deadline::After(absl::Seconds(30));
    while (!done(process) && !deadline.Expired()) {
      comm::WaitReadable(process.fd(), deadline);
      process.Read();
    }
    EXPECT_TRUE(done(process));
  }
  static void ReadUntilEnd(KeptProcess& process) {
    ReadUntil(process, [](const KeptProcess& p) { return p.end().has_value(); });
  }
  static void ReadUntilGone(KeptProcess& process) {
    ReadUntil(process, [](const KeptProcess& p) { return p.gone(); });
  }

  // Waits for a file that a process writes, whole lines.
  std::string Await(const std::string& name) const {
    const Deadline deadline = Deadline::After(absl::Seconds(30));
    for (;;) {
      std::string text = ReadAll(folder_ + "/" + name);
      if (absl::StrContains(text, '\n')) return text;
      if (deadline.Expired()) {
        ADD_FAILURE() << name << " does not come";
        return "";
      }
      absl::SleepFor(absl::Milliseconds(2));
    }
  }

  std::string Mark() const { return absl::StrCat("KEEPER_TEST_FOLDER=", folder_); }

  std::string folder_;
};

TEST_F(KeeperTest, GivesTheProgramsEnd) {
  const int64_t start = MonotonicNanoseconds();
  KeptProcess good(Shell("pwd > where; exit 0"));
  ReadUntilGone(good);
  EXPECT_TRUE(good.end()->exit_status == 0 && good.end()->signal == 0);
  EXPECT_GT(good.end()->time_ns, start);
  EXPECT_LT(good.end()->time_ns, MonotonicNanoseconds());
  EXPECT_EQ(ReadAll(folder_ + "/where"), folder_ + "\n");
  EXPECT_FALSE(good.keeper_died());
  KeptProcess bad(Shell("exit 3"));
  ReadUntilGone(bad);
  EXPECT_EQ(bad.end()->exit_status, 3);
  KeptProcess killed(Shell("kill -SEGV $$"));
  ReadUntilGone(killed);
  EXPECT_EQ(killed.end()->signal, SIGSEGV);
  KeptOptions none = Shell("");
  none.program = "/no/such/program";
  KeptProcess missing(none);
  ReadUntilGone(missing);
  EXPECT_EQ(missing.end()->exit_status, 127);
  EXPECT_TRUE(absl::StrContains(missing.end()->error, "/no/such/program")) << missing.end()->error;
  ExpectNoneLeft();
}

TEST_F(KeeperTest, PassesSignalsOnToTheWholeGroupOnce) {
  KeptProcess process(
      Shell("trap 'echo parent >> got; exit 5' TERM\n"
            "sh -c 'trap \"echo child >> got; exit 0\" TERM; echo > ready; while :; do "
            "sleep 0.01; done' & wait; wait"));
  Await("ready");
  process.Signal(SIGTERM);
  ReadUntilGone(process);
  EXPECT_EQ(process.end()->exit_status, 5);
  const std::string got = ReadAll(folder_ + "/got");
  EXPECT_EQ(got.size(), std::string("parent\nchild\n").size()) << got;
  ExpectNoneLeft();
}

TEST_F(KeeperTest, KillsWhatIgnoresTheSignalWhenTheGraceIsOver) {
  KeptProcess process(
      Shell("trap '' TERM; echo > ready; while :; do sleep 0.01; done", absl::Milliseconds(200)));
  Await("ready");
  const Stopwatch watch;
  process.Signal(SIGTERM);
  ReadUntilGone(process);
  EXPECT_GE(watch.ElapsedSeconds(), 0.2);
  EXPECT_EQ(process.end()->signal, SIGKILL);
  ExpectNoneLeft();
}

TEST_F(KeeperTest, StopsWhatTheProgramLeavesBehind) {
  // In a session of its own, so that no process group reaches it, and deaf to SIGTERM.
  KeptProcess process(
      Shell("setsid sh -c 'trap \"\" TERM; echo > ready; while :; do sleep 0.01; done' &\n"
            "while [ ! -e ready ]; do sleep 0.01; done; exit 4",
            absl::Milliseconds(300)));
  ReadUntilEnd(process);
  EXPECT_EQ(process.end()->exit_status, 4);
  ReadUntilGone(process);
  EXPECT_EQ(Running(), 0) << "gone means that nothing is left";
  // One that can be asked is not killed.
  KeptProcess polite(Shell(
      "setsid sh -c 'trap \"echo asked > asked; exit\" TERM; echo > ready2; while :; do sleep "
      "0.01; done' &\nwhile [ ! -e ready2 ]; do sleep 0.01; done"));
  ReadUntilGone(polite);
  EXPECT_EQ(ReadAll(folder_ + "/asked"), "asked\n");
  ExpectNoneLeft();
}

// A shell in front of a program that saves its state on SIGTERM: the shell goes at once, the
// program is asked once and has its time.
TEST_F(KeeperTest, WhatWasAskedWithTheProgramIsNotAskedAgain) {
  KeptProcess process(
      Shell("sh -c 'trap \"echo asked >> asked; sleep 0.3; echo saved > saved; exit 0\" TERM; "
            "setsid sh -c \"trap \\\"echo daemon >> asked2; exit\\\" TERM; echo > ready2; while :; "
            "do sleep 0.01; done\" & echo > ready; while :; do sleep 0.01; done' & wait"));
  Await("ready");
  Await("ready2");
  process.Signal(SIGTERM);
  ReadUntilEnd(process);
  EXPECT_EQ(process.end()->signal, SIGTERM);
  ReadUntilGone(process);
  EXPECT_EQ(ReadAll(folder_ + "/saved"), "saved\n");
  EXPECT_EQ(ReadAll(folder_ + "/asked"), "asked\n");
  EXPECT_EQ(ReadAll(folder_ + "/asked2"), "daemon\n") << "in a session of its own: asked when left";
  ExpectNoneLeft();
}

TEST_F(KeeperTest, KillReachesGrandchildrenAtOnce) {
  KeptProcess process(
      Shell("trap '' TERM; setsid sh -c 'trap \"\" TERM; echo > ready; sleep 600' & wait"));
  Await("ready");
  process.Kill();
  ReadUntilGone(process);
  EXPECT_EQ(process.end()->signal, SIGKILL);
  ExpectNoneLeft();
}

TEST_F(KeeperTest, NothingOutlivesTheLauncher) {
  const std::string command = "setsid sh -c 'trap \"\" TERM; echo > ready; sleep 600' & wait";
  {
    KeptProcess process(Shell(command));
    Await("ready");
    EXPECT_GE(Running(), 3);
  }  // the socket closes, as it does when the launcher is killed
  ExpectNoneLeft();
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

TEST_F(KeeperTest, NothingOutlivesAKilledKeeperUnderASubreaper) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  KeptProcess other(Shell("echo > other; sleep 600"));
  KeptProcess process(Shell("setsid sh -c 'echo > ready; sleep 600' & wait"));
  Await("ready");
  Await("other");
  kill(process.keeper_pid(), SIGKILL);
  ReadUntilGone(process);
  EXPECT_TRUE(process.keeper_died());
  EXPECT_EQ(process.end()->signal, SIGKILL);
  EXPECT_TRUE(absl::StrContains(process.end()->error, "keeper")) << process.end()->error;
  EXPECT_TRUE(KillDescendants({other.keeper_pid()}, Deadline::After(absl::Seconds(10))));
  EXPECT_EQ(Running(), 3) << "the other's keeper, its shell, and sleep";
  other.Kill();
  ReadUntilGone(other);
  ExpectNoneLeft();
}

TEST_F(KeeperTest, ASignalToTheKeeperIsForTheProgram) {
  KeptProcess process(Shell("trap 'exit 6' TERM; echo > ready; while :; do sleep 0.01; done"));
  Await("ready");
  kill(process.keeper_pid(), SIGTERM);
  ReadUntilGone(process);
  EXPECT_EQ(process.end()->exit_status, 6);
}

TEST_F(KeeperTest, OutputEndsWithItsLastWriter) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const comm::UniqueFd read_end(ends[0]);
  comm::UniqueFd write_end(ends[1]);
  KeptOptions options = Shell("echo out; echo err >&2; exec >&- 2>&-; echo > closed; sleep 600");
  options.output = options.error = write_end.get();
  KeptProcess process(options);
  write_end.reset();
  Await("closed");
  std::string text;
  char c = 0;
  while (read(read_end.get(), &c, 1) == 1) text += c;  // ends although the program lives
  EXPECT_EQ(text, "out\nerr\n");
  process.Kill();
  ReadUntilGone(process);
}

TEST(DescendantsTest, LeavesOutWhatIsExcepted) {
  EXPECT_TRUE(Descendants(getpid()).empty());
  const std::vector<pid_t> all = Descendants(getppid());
  EXPECT_NE(std::find(all.begin(), all.end(), getpid()), all.end());
  const std::vector<pid_t> others = Descendants(getppid(), {getpid()});
  EXPECT_EQ(std::find(others.begin(), others.end(), getpid()), others.end());
}

}  // namespace
}  // namespace lockstep::launcher

int main(int argc, char** argv) {
  lockstep::launcher::MaybeRunKeeper(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
