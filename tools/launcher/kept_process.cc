// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/tools/launcher/keeper.h"
#include "lockstep/tools/launcher/keeper_messages.h"

namespace lockstep::launcher {
namespace {

void SetStatus(int wait_status, ProgramEnd* end) {
  if (WIFSIGNALED(wait_status)) end->signal = WTERMSIG(wait_status);
  if (WIFEXITED(wait_status)) end->exit_status = WEXITSTATUS(wait_status);
}

}  // namespace

KeptProcess::KeptProcess(const KeptOptions& options) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw ResourceExhaustedError(
        absl::StrCat("cannot start a rank: socketpair: ", comm::ErrnoText(errno)));
  }
  socket_ = comm::UniqueFd(ends[0]);
  const comm::UniqueFd theirs(ends[1]);
  const comm::UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<std::string> arguments = {
      "rank_keeper",
      absl::StrCat(kKeeperMarker, theirs.get(), ",", absl::ToInt64Milliseconds(options.grace)),
      options.program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  keeper_ = comm::StartChild("launch", {.program = "/proc/self/exe",
                                        .arguments = std::move(arguments),
                                        .environment = options.environment,
                                        .folder = options.folder,
                                        .input = nothing.get(),
                                        .output = options.output,
                                        .error = options.error,
                                        .inherited = {theirs.get()},
                                        .dies_with_parent = false,
                                        .signal_mask = options.signal_mask});
}

void KeptProcess::Read() {
  while (!gone()) {
    char buffer[kMaxKeeperMessage];
    const ssize_t n = recv(socket_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n > 0) {
      TakeReport(std::string(buffer, static_cast<size_t>(n)));
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return;
    } else {
      LoseKeeper();
    }
  }
}

void KeptProcess::TakeReport(const std::string& text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, kStartedReport)) {
    (void)absl::SimpleAtoi(rest, &pid_);
    return;
  }
  ProgramEnd end;
  end.time_ns = MonotonicNanoseconds();
  if (absl::ConsumePrefix(&rest, kEndedReport)) {
    const std::vector<absl::string_view> fields = absl::StrSplit(rest, ' ');
    int status = 0;
    if (fields.size() == 2 && absl::SimpleAtoi(fields[0], &status) &&
        absl::SimpleAtoi(fields[1], &end.time_ns)) {
      SetStatus(status, &end);
    }
  } else if (absl::ConsumePrefix(&rest, kFailedReport)) {
    end.exit_status = kCannotExecuteStatus;
    end.error = std::string(rest);
  }
  if (!end_.has_value()) end_ = end;
}

// The socket has ended, and with it the keeper.
void KeptProcess::LoseKeeper() {
  socket_.reset();
  comm::WaitReadable(keeper_.pidfd(), Deadline::After(absl::Seconds(5)));
  const int status = keeper_.Reap().value_or(0);
  if (WIFEXITED(status) && end_.has_value()) return;
  keeper_died_ = true;
  if (end_.has_value()) return;
  ProgramEnd end;
  end.time_ns = MonotonicNanoseconds();
  SetStatus(status, &end);
  if (end.signal == 0) end.exit_status = kCannotExecuteStatus;
  end.error = absl::StrCat("its keeper (process ", keeper_.pid(), ") ended first");
  end_ = end;
}

void KeptProcess::Command(const std::string& text) {
  // A keeper that has gone is noticed by Read.
  if (!gone()) (void)send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void KeptProcess::Signal(int signal) { Command(absl::StrCat(kSignalCommand, signal)); }

void KeptProcess::Kill() { Command(std::string(kKillCommand)); }

}  // namespace lockstep::launcher
