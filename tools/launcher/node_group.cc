// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/launcher/node_group.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/child_process.h"
#include "lockstep/comm/socket.h"

namespace lockstep::launcher {
namespace {

constexpr char kAttemptKey[] = "attempt";
constexpr char kDone[] = "done";
constexpr char kFailed[] = "failed ";  // exit status, unix nanoseconds, text
constexpr char kStopped[] = "stop ";   // text
constexpr absl::Duration kMeetPause = absl::Milliseconds(20);
constexpr absl::Duration kLeavePatience = absl::Seconds(10);

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != 0 ? name : "localhost";
}

// Sorts by time of day, and differs between jobs.
std::string NewRunId() {
  return absl::StrCat(absl::FormatTime("%Y%m%d-%H%M%S-", absl::Now(), absl::UTCTimeZone()),
                      comm::RandomName().substr(0, 6));
}

[[noreturn]] void ThrowBadNote(absl::string_view text) {
  throw InternalError(absl::StrCat("launch: a note of another launcher is malformed: ", text,
                                   ": do all nodes run the same version?"));
}

std::unique_ptr<comm::StoreServer> ServeRanks(const std::string& address,
                                              const std::string& token) {
  const comm::SignalCatcher none({SIGINT, SIGTERM, SIGHUP});  // not for the server's thread
  return std::make_unique<comm::StoreServer>(
      comm::StoreServerOptions{.address = address, .port = 0, .token = token});
}

}  // namespace

int NodePlan::world_size() const { return std::accumulate(nprocs.begin(), nprocs.end(), 0); }

int NodePlan::first_rank(int node) const {
  return std::accumulate(nprocs.begin(), nprocs.begin() + node, 0);
}

std::string NodePlan::ToString() const {
  return absl::StrCat(attempt, " ", run_id, " ", absl::StrJoin(nprocs, ","), " ", master_address,
                      " ", master_port, " ", store_port);
}

NodePlan NodePlan::FromString(absl::string_view text) {
  const std::vector<std::string> fields = absl::StrSplit(text, ' ');
  NodePlan plan;
  if (fields.size() != 6 || !absl::SimpleAtoi(fields[0], &plan.attempt) ||
      !absl::SimpleAtoi(fields[4], &plan.master_port) ||
      !absl::SimpleAtoi(fields[5], &plan.store_port)) {
    ThrowBadNote(text);
  }
  plan.run_id = fields[1];
  plan.master_address = fields[3];
  for (const absl::string_view nproc : absl::StrSplit(fields[2], ',')) {
    plan.nprocs.push_back(0);
    if (!absl::SimpleAtoi(nproc, &plan.nprocs.back())) ThrowBadNote(text);
  }
  return plan;
}

std::string Verdict::ToString() const {
  return absl::StrCat(static_cast<int>(kind), " ", exit_status, " ", text);
}

Verdict Verdict::FromString(absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, absl::MaxSplits(' ', 2));
  Verdict verdict;
  int kind = 0;
  if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &kind) || kind < 0 ||
      kind > static_cast<int>(VerdictKind::kStop) ||
      !absl::SimpleAtoi(fields[1], &verdict.exit_status)) {
    ThrowBadNote(text);
  }
  verdict.kind = static_cast<VerdictKind>(kind);
  verdict.text = std::string(fields[2]);
  return verdict;
}

NodeGroup::NodeGroup(const LaunchOptions& options, const std::string& token)
    : options_(options), token_(token), board_(options, token) {
  if (coordinates()) run_id_ = NewRunId();
}

NodeGroup::~NodeGroup() = default;

std::string NodeGroup::Key(absl::string_view kind, int attempt) const {
  return absl::StrCat(kind, "/", attempt);
}

std::string NodeGroup::Key(absl::string_view kind, int attempt, int node) const {
  return absl::StrCat(kind, "/", attempt, "/", node);
}

Meeting NodeGroup::Meet(const std::function<bool()>& interrupted) {
  return coordinates() ? Gather(interrupted) : Join(interrupted);
}

// ---- Node 0: gathers the others ----

Meeting NodeGroup::Gather(const std::function<bool()>& interrupted) {
  ++attempt_;
  ForgetReport();
  verdict_.reset();
  rank_store_.reset();
  board_.Set(kAttemptKey, absl::StrCat(attempt_));
  const Deadline deadline = Deadline::After(options_.join_timeout);
  std::vector<int> nprocs;
  for (std::vector<int> missing = Missing(&nprocs); !missing.empty(); missing = Missing(&nprocs)) {
    board_.Beat();
    Verdict end = {.kind = VerdictKind::kGiveUp, .exit_status = 1};
    if (interrupted()) {
      end = {.kind = VerdictKind::kStop, .text = "a signal stopped node 0's launcher"};
    } else if (deadline.Expired()) {
      end.text = absl::StrCat("node", missing.size() > 1 ? "s " : " ", absl::StrJoin(missing, ", "),
                              " did not come to the ", board_.Describe(), " within ",
                              absl::FormatDuration(options_.join_timeout),
                              " (--join_timeout) for attempt ", attempt_);
    } else {
      absl::SleepFor(kMeetPause);
      continue;
    }
    board_.Set(Key("verdict", attempt_), end.ToString());
    verdict_ = end;
    return {.verdict = end};
  }
  NodePlan plan = MakePlan(nprocs);
  board_.ForgetBeats();
  board_.Set(Key("plan", attempt_), plan.ToString());
  return {.plan = std::move(plan)};
}

// Nodes that are not ready; of the others the numbers of ranks.
std::vector<int> NodeGroup::Missing(std::vector<int>* nprocs) {
  nprocs->assign(static_cast<size_t>(options_.nnodes), options_.nproc);
  std::vector<int> missing;
  for (int node = 1; node < options_.nnodes; ++node) {
    const std::optional<std::string> text = board_.Get(Key("ready", attempt_, node));
    if (!text.has_value()) {
      missing.push_back(node);
    } else if (!absl::SimpleAtoi(*text, &(*nprocs)[static_cast<size_t>(node)])) {
      ThrowBadNote(*text);
    }
  }
  return missing;
}

NodePlan NodeGroup::MakePlan(const std::vector<int>& nprocs) {
  NodePlan plan = {.attempt = attempt_, .run_id = run_id_, .nprocs = nprocs};
  plan.master_address = "127.0.0.1";
  if (!options_.rendezvous_host.empty()) plan.master_address = options_.rendezvous_host;
  if (!options_.rendezvous_folder.empty() && options_.nnodes > 1) plan.master_address = HostName();
  if (options_.rendezvous_folder.empty()) {
    rank_store_ = ServeRanks(plan.master_address, token_);
    plan.store_port = rank_store_->port();
    plan.master_port = comm::PortOf(comm::ListenTcp(plan.master_address, 0).get());
  } else {
    plan.master_port = comm::PortOf(comm::ListenTcp("0.0.0.0", 0).get());
  }
  return plan;
}

// ---- The other nodes: join ----

Meeting NodeGroup::Join(const std::function<bool()>& interrupted) {
  const int last = attempt_;  // an attempt that this launcher took part in
  int ready = -1;             // the attempt that we said to be ready for
  int refused = -1;           // the attempt that had started without us
  const Deadline deadline = Deadline::After(options_.join_timeout);
  const auto end = [&](Verdict verdict) {
    verdict_ = verdict;
    return Meeting{.verdict = std::move(verdict)};
  };
  while (!deadline.Expired()) {
    board_.Beat();
    int current = -1;
    if (const std::optional<std::string> text = board_.Get(kAttemptKey)) {
      if (!absl::SimpleAtoi(*text, &current)) ThrowBadNote(*text);
    }
    const bool stop = interrupted();
    if (current >= 0) {
      attempt_ = current;
      if (stop)
        ReportStop(absl::StrCat("a signal stopped the launcher of node ", options_.node_rank));
      const std::optional<std::string> verdict = board_.Get(Key("verdict", current));
      if (verdict.has_value()) {
        const Verdict known = Verdict::FromString(*verdict);
        if (known.kind != VerdictKind::kRestart) return end(known);
      } else if (const std::optional<std::string> text = board_.Get(Key("plan", current))) {
        if (ready == current) {
          ForgetReport();
          verdict_.reset();
          board_.ForgetBeats();
          return {.plan = NodePlan::FromString(*text)};
        }
        if (refused != current) {
          Report(absl::StrCat(kFailed, "1 ", absl::ToUnixNanos(absl::Now()), " node ",
                              options_.node_rank,
                              last == current ? " had lost sight of node 0"
                                              : " came when the attempt had started"));
          refused = current;
        }
        Flush();
      } else if (ready != current) {
        if (board_.Set(Key("ready", current, options_.node_rank), absl::StrCat(options_.nproc))) {
          ready = current;
        }
      }
    }
    if (stop) {
      return end({.kind = VerdictKind::kStop, .text = "a signal stopped this node's launcher"});
    }
    absl::SleepFor(kMeetPause);
  }
  return end(
      {.kind = VerdictKind::kGiveUp,
       .exit_status = 1,
       .text = absl::StrCat("node 0 did not start an attempt with this node (", options_.node_rank,
                            ") within ", absl::FormatDuration(options_.join_timeout),
                            " (--join_timeout), over the ", board_.Describe(),
                            ": is its launcher running?")});
}

// ---- During an attempt ----

void NodeGroup::Report(const std::string& text) {
  report_ = text;
  unsent_key_ = Key("report", attempt_, options_.node_rank);
  Flush();
}

void NodeGroup::ForgetReport() {
  report_.clear();
  unsent_key_.clear();
}

void NodeGroup::Flush() {
  if (!unsent_key_.empty() && board_.Set(unsent_key_, report_)) unsent_key_.clear();
}

void NodeGroup::ReportDone() {
  if (report_.empty()) Report(kDone);
}

void NodeGroup::ReportFailure(const Failure& failure) {
  if (!report_.empty() && report_ != kDone) return;
  Report(absl::StrCat(kFailed, failure.exit_status, " ", failure.unix_ns, " ", failure.text));
}

void NodeGroup::ReportStop(absl::string_view text) {
  if (!absl::StartsWith(report_, kStopped)) Report(absl::StrCat(kStopped, text));
}

std::optional<Verdict> NodeGroup::Poll() {
  if (verdict_.has_value()) return verdict_;
  board_.Beat();
  Flush();
  if (coordinates()) {
    verdict_ = Decide();
    if (verdict_.has_value()) board_.Set(Key("verdict", attempt_), verdict_->ToString());
    return verdict_;
  }
  if (const std::optional<std::string> text = board_.Get(Key("verdict", attempt_))) {
    verdict_ = Verdict::FromString(*text);
  } else if (std::max(board_.SinceReached(), board_.SinceBeat(0)) > options_.node_timeout) {
    verdict_ =
        Verdict{.kind = VerdictKind::kRestart,
                .exit_status = 1,
                .text = absl::StrCat(
                    "node 0's launcher (", board_.Describe(), ") has given no sign of life for ",
                    absl::FormatDuration(options_.node_timeout), " (--node_timeout)")};
  }
  return verdict_;
}

std::optional<Verdict> NodeGroup::Decide() {
  std::optional<Verdict> verdict = DecideFromReports();
  if (!verdict.has_value()) verdict = SilentNode();
  if (verdict.has_value() && verdict->kind == VerdictKind::kRestart &&
      attempt_ >= options_.max_restarts) {
    verdict->kind = VerdictKind::kGiveUp;
  }
  return verdict;
}

std::optional<Verdict> NodeGroup::DecideFromReports() {
  int done = 0;
  std::optional<Verdict> failed;
  int64_t first_ns = 0;
  for (int node = 0; node < options_.nnodes; ++node) {
    const std::optional<std::string> report =
        node == options_.node_rank
            ? (report_.empty() ? std::nullopt : std::optional<std::string>(report_))
            : board_.Get(Key("report", attempt_, node));
    if (!report.has_value()) continue;
    absl::string_view rest = *report;
    if (absl::ConsumePrefix(&rest, kStopped)) {
      return Verdict{.kind = VerdictKind::kStop, .text = std::string(rest)};
    }
    if (rest == kDone) {
      ++done;
      continue;
    }
    const std::vector<absl::string_view> fields =
        absl::StrSplit(absl::StripPrefix(rest, kFailed), absl::MaxSplits(' ', 2));
    int status = 0;
    int64_t ns = 0;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &status) ||
        !absl::SimpleAtoi(fields[1], &ns)) {
      ThrowBadNote(*report);
    }
    if (failed.has_value() && ns >= first_ns) continue;
    first_ns = ns;
    failed = Verdict{
        .kind = VerdictKind::kRestart, .exit_status = status, .text = std::string(fields[2])};
  }
  if (failed.has_value()) return failed;
  if (done == options_.nnodes) return Verdict{.kind = VerdictKind::kSuccess};
  return std::nullopt;
}

std::optional<Verdict> NodeGroup::SilentNode() {
  for (int node = 1; node < options_.nnodes; ++node) {
    if (board_.SinceBeat(node) <= options_.node_timeout) continue;
    return Verdict{
        .kind = VerdictKind::kRestart,
        .exit_status = 1,
        .text = absl::StrCat("node ", node, " has given no sign of life for ",
                             absl::FormatDuration(options_.node_timeout), " (--node_timeout)")};
  }
  return std::nullopt;
}

void NodeGroup::Leave() {
  if (options_.nnodes == 1) return;
  if (!coordinates()) {
    board_.Set(absl::StrCat("bye/", options_.node_rank), "");
    return;
  }
  const Deadline deadline = Deadline::After(std::min(kLeavePatience, options_.node_timeout));
  for (int node = 1; node < options_.nnodes; ++node) {
    // One that took no part, or died, says no farewell.
    if (!board_.Get(Key("ready", attempt_, node)).has_value()) continue;
    while (!board_.Get(absl::StrCat("bye/", node)).has_value()) {
      if (deadline.Expired()) return;
      if (board_.SinceBeat(node) > options_.node_timeout) break;
      absl::SleepFor(kMeetPause);
    }
  }
}

}  // namespace lockstep::launcher
