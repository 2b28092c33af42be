// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/child_process.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// What the child needs between fork and exec, where nothing may be allocated.
struct Prepared {
  const ChildOptions& options;
  char* const* arguments;
  char* const* environment;
  pid_t parent;
  int failure_pipe;
};

// Only async-signal-safe calls.
[[noreturn]] void Become(const Prepared& prepared) {
  const ChildOptions& options = prepared.options;
  setpgid(0, 0);
  if (options.dies_with_parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != prepared.parent) _exit(0);  // it died before the line above
  }
  bool ready = options.folder.empty() || chdir(options.folder.c_str()) == 0;
  const int standard[] = {options.input, options.output, options.error};
  for (int i = 0; i < 3; ++i) {
    if (standard[i] >= 0) ready = ready && dup2(standard[i], i) == i;
  }
  for (const int fd : options.inherited) fcntl(fd, F_SETFD, 0);
  sigprocmask(SIG_SETMASK, &options.signal_mask, nullptr);
  if (ready) execve(options.program.c_str(), prepared.arguments, prepared.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(prepared.failure_pipe, &error, sizeof(error));
  _exit(127);
}

}  // namespace

SignalCatcher::SignalCatcher(const std::vector<int>& signals) {
  pthread_sigmask(SIG_SETMASK, nullptr, &saved_);
  if (signals.empty()) return;
  sigset_t caught;
  sigemptyset(&caught);
  for (const int signal : signals) sigaddset(&caught, signal);
  pthread_sigmask(SIG_BLOCK, &caught, nullptr);
  fd_ = UniqueFd(signalfd(-1, &caught, SFD_NONBLOCK | SFD_CLOEXEC));
}

SignalCatcher::~SignalCatcher() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }

int SignalCatcher::Next() {
  signalfd_siginfo info;
  return read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo)
                                                              : 0;
}

void ChildProcess::Signal(int signal) const {
  if (running()) kill(pid_, signal);
}

std::optional<int> ChildProcess::Reap() {
  int status = 0;
  if (!running() || waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pidfd_.reset();
  return status;
}

void ChildProcess::WaitAndReap() {
  if (running()) waitpid(pid_, nullptr, 0);
  pidfd_.reset();
}

ChildProcess StartChild(absl::string_view call, const ChildOptions& options) {
  const auto exhausted = [&](absl::string_view what) {
    return ResourceExhaustedError(
        absl::StrCat(call, ": cannot start a process: ", what, ": ", ErrnoText(errno)));
  };
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) throw exhausted("pipe");
  const UniqueFd failure_read(failure[0]);
  UniqueFd failure_write(failure[1]);
  const std::vector<char*> arguments = Pointers(options.arguments);
  std::vector<char*> environment;
  if (options.environment.has_value()) environment = Pointers(*options.environment);
  const Prepared prepared = {options, arguments.data(),
                             environment.empty() ? environ : environment.data(), getpid(),
                             failure_write.get()};
  ChildProcess child;
  child.pid_ = fork();
  if (child.pid_ < 0) throw exhausted("fork");
  if (child.pid_ == 0) Become(prepared);
  child.pidfd_ = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, child.pid_, 0)));
  if (!child.pidfd_.valid()) {
    const Error error = exhausted("pidfd_open");
    kill(child.pid_, SIGKILL);
    waitpid(child.pid_, nullptr, 0);
    throw error;
  }
  failure_write.reset();
  int error = 0;
  ssize_t n = 0;
  do {
    n = read(failure_read.get(), &error, sizeof(error));
  } while (n < 0 && errno == EINTR);
  if (n != sizeof(error)) return child;
  child.WaitAndReap();
  throw InvalidArgumentError(absl::StrCat(call, ": cannot execute ", options.program,
                                          options.folder.empty() ? "" : " in ", options.folder,
                                          ": ", ErrnoText(error)));
}

}  // namespace lockstep::comm
