// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/launcher/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/tools/launcher/keeper_messages.h"
#include "lockstep/tools/launcher/process_tree.h"

namespace lockstep::launcher {
namespace {

// How often to look whether the killed are gone, and whether they have started others.
constexpr absl::Duration kLookAgain = absl::Milliseconds(20);

class Keeper {
 public:
  Keeper(int socket, absl::Duration grace)
      : socket_(socket), grace_(grace), signals_({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {}

  void Run(const std::string& program, std::vector<std::string> arguments) {
    try {
      program_ = comm::StartChild("launch", {.program = program,
                                             .arguments = std::move(arguments),
                                             .signal_mask = signals_.saved_mask()});
    } catch (const Error& error) {
      Report(absl::StrCat(kFailedReport, error.message().substr(0, kMaxKeeperMessage / 2)));
      return;
    }
    LetGoOfOutput();
    Report(absl::StrCat(kStartedReport, program_.pid()));
    for (Reap(); program_.running() || StopLeftovers(); Reap()) {
      if (killing_) KillAll();
      pollfd entries[] = {{launcher_lives_ ? socket_ : -1, POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
      poll(entries, 2, PollMilliseconds());
      if (entries[0].revents != 0) TakeCommand();
      if (entries[1].revents != 0) TakeSignals();
      if (stop_by_.Expired()) killing_ = true;
    }
  }

 private:
  // What the program writes ends with the last process that can write it.
  static void LetGoOfOutput() {
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    close(nothing);
  }

  void Report(const std::string& text) {
    (void)send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }

  int PollMilliseconds() const {
    if (killing_) return static_cast<int>(absl::ToInt64Milliseconds(kLookAgain));
    return stop_by_.RemainingPollMilliseconds();
  }

  // After the program's end: asks what is left to go too, once each. False when nothing is. What
  // has a parent among it is that one's business until it is left itself.
  bool StopLeftovers() {
    const std::vector<pid_t> left = Children(getpid());
    for (const pid_t pid : left) {
      const bool asked_with_program = group_asked_ && getpgid(pid) == program_.pid();
      if (!asked_with_program && asked_.insert(pid).second) kill(pid, SIGTERM);
    }
    if (!left.empty() && stop_by_.IsInfinite()) stop_by_ = Deadline::After(grace_);
    return !left.empty();
  }

  static void KillAll() {
    for (const pid_t pid : Descendants(getpid())) kill(pid, SIGKILL);
  }

  void TakeCommand() {
    char buffer[kMaxKeeperMessage];
    const ssize_t n = recv(socket_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    absl::string_view command(buffer, static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (command.empty()) {  // the launcher is gone
      launcher_lives_ = false;
      killing_ = true;
      return;
    }
    int signal = 0;
    if (command == kKillCommand) {
      killing_ = true;
    } else if (absl::ConsumePrefix(&command, kSignalCommand) &&
               absl::SimpleAtoi(command, &signal)) {
      SignalProgram(signal);
    }
  }

  void SignalProgram(int signal) {
    if (program_.running()) kill(-program_.pid(), signal);
    if (signal != SIGTERM && signal != SIGINT) return;
    group_asked_ = true;
    if (stop_by_.IsInfinite()) stop_by_ = Deadline::After(grace_);
  }

  // One that was sent to the keeper itself is meant for the program.
  void TakeSignals() {
    for (int signal = signals_.Next(); signal != 0; signal = signals_.Next()) {
      if (signal != SIGCHLD) SignalProgram(signal);
    }
  }

  void Reap() {
    for (;;) {
      siginfo_t info = {};
      if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
      if (info.si_pid != program_.pid()) {
        waitpid(info.si_pid, nullptr, WNOHANG);  // one that the program left to us
      } else if (const std::optional<int> status = program_.Reap()) {
        Report(absl::StrCat(kEndedReport, *status, " ", MonotonicNanoseconds()));
      }
    }
  }

  const int socket_;
  const absl::Duration grace_;
  comm::SignalCatcher signals_;
  comm::ChildProcess program_;
  bool launcher_lives_ = true;
  bool killing_ = false;
  bool group_asked_ = false;  // to stop
  std::set<pid_t> asked_;     // of what the program has left behind
  Deadline stop_by_;
};

}  // namespace

void MaybeRunKeeper(int argc, char** argv) {
  if (argc < 2) return;
  absl::string_view marker = argv[1];
  if (!absl::ConsumePrefix(&marker, kKeeperMarker)) return;
  const std::vector<absl::string_view> numbers = absl::StrSplit(marker, ',');
  int socket = -1;
  int64_t grace = 0;
  if (argc < 4 || numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &socket) ||
      !absl::SimpleAtoi(numbers[1], &grace)) {
    std::fprintf(stderr, "%s is for processes started by the launcher only\n", argv[1]);
    std::_Exit(2);
  }
  fcntl(socket, F_SETFD, FD_CLOEXEC);
  prctl(PR_SET_NAME, "rank_keeper");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signal(SIGPIPE, SIG_DFL);  // the launcher ignores it, which would be inherited
  Keeper(socket, absl::Milliseconds(grace)).Run(argv[2], {argv + 3, argv + argc});
  std::_Exit(0);
}

}  // namespace lockstep::launcher
