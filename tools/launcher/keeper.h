// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A process that leaves nothing behind: a program, whatever it is, with a keeper above it.
//
//   launcher --- keeper --- program --- what it starts
//
//   int main(int argc, char** argv) {
//     launcher::MaybeRunKeeper(argc, argv);                   // first: a keeper never comes back
//     launcher::KeptProcess process({.program = "/bin/sh", .arguments = {"sh", "train.sh"}, ...});
//     while (!process.gone()) {
//       poll on process.fd(), then process.Read();
//       if (process.end()) { /* the program has ended; what it left behind is being stopped */ }
//     }
//
// The keeper is this program again. It becomes the parent of whatever the program leaves behind
// (the kernel's "child subreaper"), and one socket ties it to the launcher: commands come over it,
// reports go back, and its end means that the launcher is gone. So nothing lives on
//   * after the program has ended: what is left gets SIGTERM, and SIGKILL when the grace is over;
//   * after the launcher was killed, in whatever way: SIGKILL to all, at once;
//   * after the keeper was killed: the program gets SIGKILL from the kernel, and the launcher is to
//     call KillDescendants (process_tree.h), having made itself a subreaper too.
// Only if launcher and keeper are killed in the same moment, what the program started may live on.
#ifndef LOCKSTEP_TOOLS_LAUNCHER_KEEPER_H_
#define LOCKSTEP_TOOLS_LAUNCHER_KEEPER_H_

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/comm/child_process.h"
#include "lockstep/comm/socket.h"

namespace lockstep::launcher {

struct KeptOptions {
  std::string program = {};                 // path of the executable
  std::vector<std::string> arguments = {};  // the first is its name
  std::vector<std::string> environment = {};
  std::string folder = {};
  int output = -1;
  int error = -1;
  // From a SIGINT or SIGTERM sent by Signal(), or from the program's end, to SIGKILL for what is
  // still there.
  absl::Duration grace = absl::Seconds(30);
  sigset_t signal_mask = {};
};

// How a program ended.
struct ProgramEnd {
  int exit_status = 0;
  int signal = 0;       // that killed it, or 0
  std::string error;    // why it could not be started, or what became of its keeper; "" otherwise
  int64_t time_ns = 0;  // MonotonicNanoseconds
};

// Not thread-safe.
class KeptProcess {
 public:
  // Starts it. Standard input is /dev/null. Throws ResourceExhausted.
  explicit KeptProcess(const KeptOptions& options);
  KeptProcess(KeptProcess&&) = default;
  // Closing the socket has a living keeper kill everything.
  ~KeptProcess() = default;

  // Readable when there is something for Read.
  int fd() const { return socket_.get(); }
  // Takes what the keeper has reported so far. Does not wait.
  void Read();

  // Once the program has ended, or could not be started.
  const std::optional<ProgramEnd>& end() const { return end_; }
  // The keeper and everything below it is gone (unless keeper_died).
  bool gone() const { return !socket_.valid(); }
  // It was killed instead of ending: see above for what to do.
  bool keeper_died() const { return keeper_died_; }
  pid_t keeper_pid() const { return keeper_.pid(); }
  // Of the program, once Read has seen it start; 0 before.
  pid_t pid() const { return pid_; }

  // To the program's process group. SIGINT and SIGTERM start the grace.
  void Signal(int signal);
  // SIGKILL to everything.
  void Kill();

 private:
  void Command(const std::string& text);
  void TakeReport(const std::string& text);
  void LoseKeeper();

  comm::ChildProcess keeper_;
  comm::UniqueFd socket_;
  std::optional<ProgramEnd> end_;
  bool keeper_died_ = false;
  pid_t pid_ = 0;
};

// In a process started as a keeper: does its work and exits. Otherwise returns.
void MaybeRunKeeper(int argc, char** argv);

}  // namespace lockstep::launcher

#endif  // LOCKSTEP_TOOLS_LAUNCHER_KEEPER_H_
