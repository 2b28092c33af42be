// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// One attempt at a job, on this node: its ranks are started, watched, and gone when Run returns.
//
//   Attempt attempt({.options = options, .plan = plan, ...}, &output, &signals, &group);
//   const AttemptResult result = attempt.Run();
//   if (result.verdict.kind == VerdictKind::kRestart) ...
#ifndef LOCKSTEP_TOOLS_LAUNCHER_ATTEMPT_H_
#define LOCKSTEP_TOOLS_LAUNCHER_ATTEMPT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/child_process.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/tools/launcher/keeper.h"
#include "lockstep/tools/launcher/line_pump.h"
#include "lockstep/tools/launcher/node_group.h"
#include "lockstep/tools/launcher/options.h"
#include "lockstep/tools/launcher/rank_environment.h"

namespace lockstep::launcher {

struct AttemptOptions {
  LaunchOptions options;
  NodePlan plan;
  std::string program;  // path of the executable
  std::string folder;   // to run in
  Environment environment;
  std::string token_path;  // for the ranks
};

struct RankResult {
  comm::RankExit exit;
  int64_t time_ns = 0;  // MonotonicNanoseconds at its end
  std::vector<std::string> last_lines;
};

struct AttemptResult {
  Verdict verdict;                // of all nodes
  std::vector<RankResult> ranks;  // of this node
  std::optional<size_t>
      first_failure;        // in `ranks`: the one that ended first among those that failed
  bool signalled = false;   // a signal came to this launcher
  std::string log_failure;  // a log file that could not be written
};

// 0, the exit status, or 128 + the signal.
int StatusOf(const comm::RankExit& exit);

class Attempt {
 public:
  // Pointers must outlive it.
  Attempt(const AttemptOptions& options, Output* output, comm::SignalCatcher* signals,
          NodeGroup* group);

  // Starts the ranks and returns when they are gone, with all that they have started, and the nodes
  // have come to a verdict. SIGINT and SIGTERM are sent on to the ranks (SIGHUP as SIGTERM). After
  // a failure anywhere the ranks get SIGTERM, and SIGKILL when the grace is over. Throws
  // ResourceExhausted (no processes to be had), FailedPrecondition (log files); then none is left.
  AttemptResult Run();

 private:
  void Start();
  void Wait();
  void TakeSignals();
  void ReadRanks();
  void TakeEnd(size_t index);
  void Follow(const Verdict& verdict);
  void Stop();
  bool AllGone() const;
  std::string LogPath(int rank, bool is_error) const;
  std::string Text(const comm::RankExit& exit) const;
  void RemoveStrays(absl::Duration patience);

  const AttemptOptions options_;
  Output* const output_;
  comm::SignalCatcher* const signals_;
  NodeGroup* const group_;
  std::unique_ptr<LinePump> pump_;
  std::vector<std::unique_ptr<KeptProcess>> processes_;
  std::vector<bool> ended_;
  bool stopping_ = false;
  AttemptResult result_;
};

}  // namespace lockstep::launcher

#endif  // LOCKSTEP_TOOLS_LAUNCHER_ATTEMPT_H_
