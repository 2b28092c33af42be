// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Starting child processes that do not outlive their parent, and taking the signals that are meant
// for them.
//
//   SignalCatcher signals({SIGINT, SIGTERM});      // before any thread is started
//   ChildProcess child = StartChild("Spawn", {.program = "/bin/sleep",
//                                             .arguments = {"sleep", "60"},
//                                             .signal_mask = signals.saved_mask()});
//   pollfd entries[] = {{signals.fd(), POLLIN, 0}, {child.pidfd(), POLLIN, 0}};
//   poll(entries, 2, -1);
//   if (int signal = signals.Next()) child.Signal(signal);
//   if (std::optional<int> status = child.Reap()) { /* as waitpid gives it */ }
//
// A child is fork and exec, never a bare fork, and leads a process group of its own, so that a
// Ctrl-C at the terminal reaches the parent alone, which forwards it once.
#ifndef LOCKSTEP_COMM_CHILD_PROCESS_H_
#define LOCKSTEP_COMM_CHILD_PROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/comm/socket.h"

namespace lockstep::comm {

// While it lives, those signals no longer interrupt this thread, or threads that it starts, but can
// be read from fd().
class SignalCatcher {
 public:
  // No signals: only saved_mask() is of use.
  explicit SignalCatcher(const std::vector<int>& signals);
  ~SignalCatcher();
  SignalCatcher(const SignalCatcher&) = delete;
  SignalCatcher& operator=(const SignalCatcher&) = delete;

  // Readable when a signal has come; -1 without signals.
  int fd() const { return fd_.get(); }
  // The next signal that has come, or 0.
  int Next();
  // The thread's mask before, which children should get.
  const sigset_t& saved_mask() const { return saved_; }

 private:
  sigset_t saved_;
  UniqueFd fd_;
};

struct ChildOptions {
  std::string program = {};                 // path of the executable; not searched for
  std::vector<std::string> arguments = {};  // the first is the name by which it is called
  // "NAME=value" each. None: this process's.
  std::optional<std::vector<std::string>> environment = {};
  std::string folder = {};  // to run in; empty: this process's
  // Descriptors that become its standard input, output and error; -1: this process's.
  int input = -1;
  int output = -1;
  int error = -1;
  // Descriptors that stay open in it under their numbers. All others should be close-on-exec.
  std::vector<int> inherited = {};
  // The kernel sends it SIGKILL when the thread that started it ends. (Its own children get no such
  // signal.)
  bool dies_with_parent = true;
  sigset_t signal_mask = {};
};

// One child. Move-only; does nothing to the process when it goes.
class ChildProcess {
 public:
  ChildProcess() = default;

  pid_t pid() const { return pid_; }
  // Readable when it has ended; -1 once it has been reaped.
  int pidfd() const { return pidfd_.get(); }
  bool running() const { return pidfd_.valid(); }
  // Nothing once it has been reaped.
  void Signal(int signal) const;
  // Its status as waitpid gives it, once, when it has ended.
  std::optional<int> Reap();
  // Waits until it has ended. Nothing once it has been reaped.
  void WaitAndReap();

 private:
  friend ChildProcess StartChild(absl::string_view call, const ChildOptions& options);

  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

// Returns when the program has taken over. Throws ResourceExhausted (no process or descriptor is to
// be had) and InvalidArgument (it cannot be executed), beginning with `call`.
ChildProcess StartChild(absl::string_view call, const ChildOptions& options);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_CHILD_PROCESS_H_
