// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/launcher/attempt.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/socket.h"
#include "lockstep/tools/launcher/process_tree.h"

namespace lockstep::launcher {
namespace {

// Between looks at what the other nodes report.
constexpr int kLookMilliseconds = 100;
// For output that has been written when all writers are gone.
constexpr absl::Duration kDrain = absl::Seconds(5);

struct Pipe {
  comm::UniqueFd source;
  comm::UniqueFd sink;
};

Pipe MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw ResourceExhaustedError(
        absl::StrCat("launch: cannot start a rank: pipe: ", comm::ErrnoText(errno)));
  }
  return {comm::UniqueFd(ends[0]), comm::UniqueFd(ends[1])};
}

}  // namespace

int StatusOf(const comm::RankExit& exit) {
  return exit.signal != 0 ? 128 + exit.signal : exit.exit_status;
}

Attempt::Attempt(const AttemptOptions& options, Output* output, comm::SignalCatcher* signals,
                 NodeGroup* group)
    : options_(options), output_(output), signals_(signals), group_(group) {}

AttemptResult Attempt::Run() {
  try {
    Start();
  } catch (const Error&) {
    processes_.clear();
    RemoveStrays(absl::Seconds(10));  // the keepers too, should they be slow
    throw;
  }
  Wait();
  RemoveStrays(kDrain);
  pump_->Finish(kDrain);
  result_.log_failure = pump_->log_failure();
  for (RankResult& rank : result_.ranks) rank.last_lines = pump_->LastLines(rank.exit.rank);
  return std::move(result_);
}

std::string Attempt::LogPath(int rank, bool is_error) const {
  if (options_.options.log_dir.empty()) return "";
  return absl::StrCat(AttemptLogFolder(options_.options, options_.plan), "/rank-", rank,
                      is_error ? ".err" : ".out");
}

void Attempt::Start() {
  const int first_rank = options_.plan.first_rank(options_.options.node_rank);
  const int nproc = options_.options.nproc;
  if (!options_.options.log_dir.empty()) {
    std::error_code failure;
    std::filesystem::create_directories(
        std::filesystem::path(LogPath(first_rank, false)).parent_path(), failure);  // the pump says
  }
  std::vector<PumpStream> streams;
  std::vector<Pipe> pipes;
  for (int i = 0; i < nproc; ++i) {
    for (const bool is_error : {false, true}) {
      pipes.push_back(MakePipe());
      streams.push_back({.rank = first_rank + i,
                         .label = absl::StrCat(first_rank + i),
                         .is_error = is_error,
                         .source = std::move(pipes.back().source),
                         .log_path = LogPath(first_rank + i, is_error)});
    }
  }
  pump_ = std::make_unique<LinePump>(output_, std::move(streams));
  result_.ranks.resize(static_cast<size_t>(nproc));
  ended_.resize(static_cast<size_t>(nproc));
  std::vector<std::string> arguments = {options_.options.program};
  arguments.insert(arguments.end(), options_.options.arguments.begin(),
                   options_.options.arguments.end());
  for (int i = 0; i < nproc; ++i) {
    result_.ranks[static_cast<size_t>(i)].exit.rank = first_rank + i;
    processes_.push_back(std::make_unique<KeptProcess>(
        KeptOptions{.program = options_.program,
                    .arguments = arguments,
                    .environment = RankEnvironment(options_.environment, options_.options,
                                                   options_.plan, i, options_.token_path),
                    .folder = options_.folder,
                    .output = pipes[static_cast<size_t>(2 * i)].sink.get(),
                    .error = pipes[static_cast<size_t>(2 * i + 1)].sink.get(),
                    .grace = options_.options.stop_grace,
                    .signal_mask = signals_->saved_mask()}));
  }
}

bool Attempt::AllGone() const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [](const std::unique_ptr<KeptProcess>& process) { return process->gone(); });
}

// Until the ranks are gone and there is a verdict.
void Attempt::Wait() {
  std::optional<Verdict> verdict;
  while (!AllGone() || !verdict.has_value()) {
    std::vector<pollfd> entries = {{signals_->fd(), POLLIN, 0}};
    for (const auto& process : processes_) entries.push_back({process->fd(), POLLIN, 0});
    poll(entries.data(), entries.size(), kLookMilliseconds);
    TakeSignals();
    ReadRanks();
    if (!verdict.has_value()) {
      verdict = group_->Poll();
      if (verdict.has_value()) Follow(*verdict);
    }
  }
  result_.verdict = *verdict;
}

void Attempt::TakeSignals() {
  for (int signal = signals_->Next(); signal != 0; signal = signals_->Next()) {
    for (const auto& process : processes_) process->Signal(signal == SIGHUP ? SIGTERM : signal);
    output_->StopWaiting();
    result_.signalled = true;
    group_->ReportStop(absl::StrCat("node ", options_.options.node_rank, "'s launcher got signal ",
                                    signal, " (", strsignal(signal), ")"));
  }
}

void Attempt::ReadRanks() {
  const std::optional<size_t> known = result_.first_failure;
  for (size_t i = 0; i < processes_.size(); ++i) {
    processes_[i]->Read();
    if (processes_[i]->end().has_value() && !ended_[i]) TakeEnd(i);
    if (processes_[i]->gone() && processes_[i]->keeper_died()) RemoveStrays(absl::Seconds(1));
  }
  if (!known.has_value() && result_.first_failure.has_value() && !stopping_ && !result_.signalled) {
    const RankResult& rank = result_.ranks[*result_.first_failure];
    const int64_t age_ns = MonotonicNanoseconds() - rank.time_ns;
    group_->ReportFailure({.exit_status = StatusOf(rank.exit),
                           .unix_ns = absl::ToUnixNanos(absl::Now()) - age_ns,
                           .text = Text(rank.exit)});
    Stop();
  }
  if (std::all_of(ended_.begin(), ended_.end(), [](bool ended) { return ended; }) &&
      !result_.first_failure.has_value() && AllGone()) {
    group_->ReportDone();
  }
}

void Attempt::TakeEnd(size_t index) {
  ended_[index] = true;
  const ProgramEnd& end = *processes_[index]->end();
  RankResult& rank = result_.ranks[index];
  rank.exit.exit_status = end.exit_status;
  rank.exit.signal = end.signal;
  rank.exit.error = end.error;
  rank.time_ns = end.time_ns;
  if (rank.exit.ok()) return;
  if (!result_.first_failure.has_value() ||
      end.time_ns < result_.ranks[*result_.first_failure].time_ns) {
    result_.first_failure = index;
  }
}

std::string Attempt::Text(const comm::RankExit& exit) const {
  if (options_.options.nnodes == 1) return exit.ToString();
  return absl::StrCat("node ", options_.options.node_rank, ": ", exit.ToString());
}

void Attempt::Follow(const Verdict& verdict) {
  // Who got the signal has sent it on already.
  if (verdict.kind == VerdictKind::kStop && result_.signalled) return;
  if (verdict.kind != VerdictKind::kSuccess) Stop();
}

void Attempt::Stop() {
  if (stopping_) return;
  stopping_ = true;
  for (const auto& process : processes_) process->Signal(SIGTERM);
}

void Attempt::RemoveStrays(absl::Duration patience) {
  std::set<pid_t> keepers;
  for (const auto& process : processes_) {
    if (!process->gone()) keepers.insert(process->keeper_pid());
  }
  KillDescendants(keepers, Deadline::After(patience));
}

}  // namespace lockstep::launcher
