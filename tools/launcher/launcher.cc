// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/launcher/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/caller_path.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/child_process.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/store_token.h"
#include "lockstep/tools/launcher/attempt.h"
#include "lockstep/tools/launcher/line_pump.h"
#include "lockstep/tools/launcher/node_group.h"

namespace lockstep::launcher {
namespace {

// The job's token and the path by which ranks read it.
class Token {
 public:
  explicit Token(const LaunchOptions& options) : path_(options.token_file) {
    if (!options.rendezvous_folder.empty()) return;
    if (!path_.empty()) {
      text_ = comm::ReadTokenFile(path_);
      return;
    }
    // In memory, so that no file is left whatever is killed; only this user can open it.
    text_ = comm::RandomName() + comm::RandomName();
    memory_ = comm::UniqueFd(memfd_create("lockstep-token", MFD_CLOEXEC));
    if (!memory_.valid() || fchmod(memory_.get(), 0600) != 0 ||
        write(memory_.get(), text_.data(), text_.size()) != static_cast<ssize_t>(text_.size())) {
      throw ResourceExhaustedError(
          absl::StrCat("launch: no memory for the token: ", comm::ErrnoText(errno)));
    }
    path_ = absl::StrCat("/proc/", getpid(), "/fd/", memory_.get());
  }

  const std::string& text() const { return text_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string text_;
  comm::UniqueFd memory_;
};

std::string SearchPath(const Environment& environment) {
  const auto it = environment.find("PATH");
  return it != environment.end() ? it->second : "/usr/local/bin:/usr/bin:/bin";
}

// What is said about the failure of this node's ranks.
std::string Report(const AttemptResult& result, int attempt) {
  if (!result.first_failure.has_value()) return "";
  const RankResult& first = result.ranks[*result.first_failure];
  std::string text =
      absl::StrCat("attempt ", attempt, ": ", first.exit.ToString(), ", the first to fail here");
  for (const RankResult& rank : result.ranks) {
    if (rank.exit.rank == first.exit.rank) continue;
    absl::StrAppend(&text, "\n  ", absl::StrFormat("%.2f", 1e-9 * (rank.time_ns - first.time_ns)),
                    " s after it: ", rank.exit.ToString());
  }
  absl::StrAppend(&text, "\n  ",
                  first.last_lines.empty()
                      ? absl::StrCat("rank ", first.exit.rank, " printed nothing")
                      : absl::StrCat("what rank ", first.exit.rank, " printed last:"));
  for (const std::string& line : first.last_lines) absl::StrAppend(&text, "\n  | ", line);
  return text;
}

// The status of a job that a signal stopped: that of the ranks here.
int StoppedStatus(const AttemptResult& result) {
  return result.first_failure.has_value() ? StatusOf(result.ranks[*result.first_failure].exit) : 0;
}

class Launcher {
 public:
  Launcher(const LaunchOptions& options, const Environment& environment)
      : options_(options),
        token_(options),
        group_(options, token_.text()),
        signals_({SIGINT, SIGTERM, SIGHUP}),
        output_(signals_.fd()) {
    attempt_.options = options;
    attempt_.folder = std::filesystem::path(CallerPath(".")).lexically_normal().string();
    attempt_.program = FindProgram(options.program, attempt_.folder, SearchPath(environment));
    attempt_.environment = environment;
    attempt_.token_path = token_.path();
  }

  int Run() {
    for (;;) {
      const Meeting meeting = group_.Meet([this] { return TakeSignal(); });
      if (!meeting.plan.has_value()) {
        if (meeting.verdict.kind != VerdictKind::kSuccess) output_.Say(meeting.verdict.text);
        return End(meeting.verdict.kind == VerdictKind::kStop ? 128 + signal_
                                                              : meeting.verdict.exit_status);
      }
      const AttemptResult result = RunAttempt(*meeting.plan);
      Tell(result, meeting.plan->attempt);
      switch (result.verdict.kind) {
        case VerdictKind::kSuccess:
          return End(0);
        case VerdictKind::kGiveUp:
          if (history_.size() > 1 || options_.max_restarts > 0) {
            output_.Say(absl::StrCat("giving up after ", history_.size(), " attempts:\n  ",
                                     absl::StrJoin(history_, "\n  ")));
          }
          return End(result.verdict.exit_status);
        case VerdictKind::kStop:
          return End(StoppedStatus(result));
        case VerdictKind::kRestart:
          break;
      }
    }
  }

 private:
  // Whether one has come while no rank runs.
  bool TakeSignal() {
    const int signal = signals_.Next();
    if (signal != 0) signal_ = signal;
    return signal != 0;
  }

  AttemptResult RunAttempt(const NodePlan& plan) {
    attempt_.plan = plan;
    try {
      return Attempt(attempt_, &output_, &signals_, &group_).Run();
    } catch (const Error& error) {
      // The others are not to wait for this node.
      group_.ReportFailure({.exit_status = 1, .text = error.message()});
      throw;
    }
  }

  void Tell(const AttemptResult& result, int attempt) {
    if (!result.log_failure.empty()) {
      output_.Say(
          absl::StrCat("attempt ", attempt, ": ", result.log_failure, "; that file is incomplete"));
    }
    const Verdict& verdict = result.verdict;
    if (verdict.kind == VerdictKind::kSuccess) return;
    const std::string report = Report(result, attempt);
    if (!report.empty()) output_.Say(report);
    if (verdict.kind == VerdictKind::kStop) {
      output_.Say(absl::StrCat("stopped: ", verdict.text));
      return;
    }
    history_.push_back(absl::StrCat("attempt ", attempt, ": ", verdict.text));
    if (options_.nnodes > 1) output_.Say(history_.back());
    if (verdict.kind == VerdictKind::kRestart) {
      output_.Say(absl::StrCat("starting all ranks again: attempt ", attempt + 1));
    }
  }

  int End(int status) {
    group_.Leave();
    return status;
  }

  const LaunchOptions options_;
  const Token token_;
  NodeGroup group_;  // before the signals are caught: while it waits they end the process
  comm::SignalCatcher signals_;
  Output output_;
  AttemptOptions attempt_;
  std::vector<std::string> history_;
  int signal_ = SIGTERM;  // the one that stopped us, or as good as
};

}  // namespace

int Launch(const LaunchOptions& options, const Environment& environment) {
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return Launcher(options, environment).Run();
}

}  // namespace lockstep::launcher
