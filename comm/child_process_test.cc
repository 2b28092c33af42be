// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/socket.h"

namespace lockstep::comm {
namespace {

// What a shell command says on its standard output, and how it ends.
struct Outcome {
  std::string output;
  int status = -1;
};

Outcome RunShell(const std::string& command, ChildOptions options = {}) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  options.program = "/bin/sh";
  options.arguments = {"sh", "-c", command};
  options.output = write_end.get();
  ChildProcess child = StartChild("test", options);
  write_end.reset();
  Outcome outcome;
  char buffer[256];
  for (ssize_t n = 0; (n = read(read_end.get(), buffer, sizeof(buffer))) > 0;) {
    outcome.output.append(buffer, static_cast<size_t>(n));
  }
  EXPECT_TRUE(WaitReadable(child.pidfd(), Deadline::After(absl::Seconds(30))));
  outcome.status = child.Reap().value_or(-1);
  EXPECT_FALSE(child.running());
  EXPECT_FALSE(child.Reap().has_value()) << "a status is given once";
  return outcome;
}

TEST(ChildProcessTest, GetsItsArgumentsEnvironmentFolderAndGroup) {
  const Outcome outcome = RunShell("echo $A-$HOME-$PWD; kill -0 -$$ && echo leads",
                                   {.environment = {{"A=b c"}}, .folder = "/"});
  EXPECT_EQ(outcome.output, "b c--/\nleads\n");
  EXPECT_EQ(outcome.status, 0);
}

TEST(ChildProcessTest, GivesStatusAndSignal) {
  EXPECT_EQ(WEXITSTATUS(RunShell("exit 7").status), 7);
  EXPECT_EQ(WTERMSIG(RunShell("kill -9 $$").status), SIGKILL);
}

TEST(ChildProcessTest, InheritsOnlyWhatItIsGiven) {
  const UniqueFd one(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd two(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::string command =
      absl::StrCat("test -e /proc/self/fd/", one.get(), " && echo one; test -e /proc/self/fd/",
                   two.get(), " && echo two; true");
  EXPECT_EQ(RunShell(command, {.inherited = {two.get()}}).output, "two\n");
}

TEST(ChildProcessTest, SaysWhyItCannotStart) {
  const auto refusal = [](const ChildOptions& options) {
    try {
      StartChild("Here", options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      return error.message();
    }
    return std::string("it started");
  };
  EXPECT_TRUE(absl::StrContains(refusal({.program = "/no/such", .arguments = {"x"}}),
                                "Here: cannot execute /no/such: No such file"));
  EXPECT_TRUE(
      absl::StrContains(refusal({.program = "/dev/null", .arguments = {"x"}}), "Permission"));
  EXPECT_TRUE(absl::StrContains(
      refusal({.program = "/bin/true", .arguments = {"true"}, .folder = "/no/folder"}),
      "cannot execute /bin/true in /no/folder"));
}

TEST(SignalCatcherTest, ReadsSignalsInsteadOfBeingInterrupted) {
  {
    SignalCatcher signals({SIGTERM, SIGUSR1});
    EXPECT_EQ(signals.Next(), 0);
    pthread_kill(pthread_self(), SIGTERM);
    EXPECT_TRUE(WaitReadable(signals.fd(), Deadline::After(absl::Seconds(10))));
    EXPECT_EQ(signals.Next(), SIGTERM);
    EXPECT_EQ(signals.Next(), 0);
    // A child with the saved mask is interrupted again.
    EXPECT_EQ(
        WTERMSIG(RunShell("kill -USR1 $$; sleep 60", {.signal_mask = signals.saved_mask()}).status),
        SIGUSR1);
  }
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_FALSE(sigismember(&mask, SIGTERM));
  EXPECT_EQ(SignalCatcher({}).fd(), -1);
}

}  // namespace
}  // namespace lockstep::comm
