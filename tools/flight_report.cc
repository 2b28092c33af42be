// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/flight_report.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/flight_record_file.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/wait_graph.h"

namespace lockstep::flight_recorder {
namespace {

using comm::CallState;
using comm::CollectiveId;
using comm::FlightCall;
using comm::FlightRecord;
using comm::RankWait;

// Null: never issued, or forgotten.
const FlightCall* FindCollective(const FlightRecord& record, int64_t number) {
  for (const FlightCall& call : record.calls) {
    if (!call.is_transfer() && call.number == number) return &call;
  }
  return nullptr;
}

bool SameCall(const FlightCall& a, const FlightCall& b) {
  // What a rank of an AllToAll sends is its own affair.
  return a.signature == b.signature &&
         (a.counts == b.counts || a.signature.op == CollectiveId::kAllToAll);
}

// ---- One group ----

class GroupAnalysis {
 public:
  // `records` of one group, by rank; not empty.
  GroupAnalysis(std::map<int, const FlightRecord*> records, double late_seconds)
      : records_(std::move(records)), late_seconds_(late_seconds) {}

  GroupReport Run() {
    const FlightRecord& first = *records_.begin()->second;
    report_.group = first.group;
    report_.key = first.key;
    report_.size = first.size;
    for (int rank = 0; rank < first.size; ++rank) {
      if (records_.count(rank) == 0) report_.without_file.push_back(rank);
    }
    CollectErrors();
    FindLastCompleted();
    CompareNext();
    FindLate();
    for (int from = 0; from < first.size; ++from) {
      for (int to = 0; to < first.size; ++to) CompareTransfers(from, to);
    }
    return report_;
  }

  // What the ranks with a file waited for, by rank of the job.
  void AppendWaits(std::map<int, std::vector<RankWait>>* waits) const {
    const FlightRecord& any = *records_.begin()->second;
    const auto world = [&any](const Ranks& ranks) {
      Ranks result;
      for (const int rank : ranks) result.push_back(any.world_rank(rank));
      return result;
    };
    for (const auto& [rank, record] : records_) {
      const FlightCall* call = FindCollective(*record, report_.last_completed + 1);
      if (call == nullptr || report_.not_issued.empty()) continue;
      AddWait(any.world_rank(rank), *call, world(report_.not_issued), waits);
    }
    for (const OpenTransfer& open : report_.transfers) {
      if (open.sent.empty() == open.received.empty()) continue;
      const int waiter = open.sent.empty() ? open.to : open.from;
      const int missing = open.sent.empty() ? open.from : open.to;
      if (records_.count(missing) == 0) continue;
      const std::map<int64_t, const FlightCall*> calls =
          Transfers(waiter, open.sent.empty() ? CollectiveId::kRecv : CollectiveId::kSend, missing);
      AddWait(any.world_rank(waiter), *calls.at(open.number), world({missing}), waits);
    }
  }

 private:
  void AddWait(int world_rank, const FlightCall& call, Ranks missing,
               std::map<int, std::vector<RankWait>>* waits) const {
    if (call.state == CallState::kCompleted) return;
    (*waits)[world_rank].push_back({.rank = world_rank,
                                    .group = report_.group,
                                    .op = call.signature.op,
                                    .number = call.number,
                                    .call = call.ToString(),
                                    .missing = std::move(missing)});
  }

  void CollectErrors() {
    for (const auto& [rank, record] : records_) {
      if (record->error_code == absl::StatusCode::kOk) continue;
      const auto same = std::find_if(
          report_.errors.begin(), report_.errors.end(),
          [r = record](const RankError& error) { return error.code == r->error_code; });
      if (same != report_.errors.end()) {
        same->ranks.push_back(rank);
      } else {
        report_.errors.push_back({record->error_code, {rank}, record->error});
      }
    }
  }

  void FindLastCompleted() {
    int64_t completed = records_.begin()->second->collectives_completed;
    for (const auto& [rank, record] : records_) {
      completed = std::min(completed, record->collectives_completed);
    }
    report_.last_completed = completed - 1;
    for (const auto& [rank, record] : records_) {
      const FlightCall* call = FindCollective(*record, completed - 1);
      if (call != nullptr) report_.last_completed_call = call->ToString();
    }
  }

  void CompareNext() {
    const int64_t next = report_.last_completed + 1;
    std::vector<const FlightCall*> distinct;
    for (const auto& [rank, record] : records_) {
      const FlightCall* call = FindCollective(*record, next);
      if (call == nullptr) {
        (record->collectives_issued <= next ? report_.not_issued : report_.forgotten)
            .push_back(rank);
        continue;
      }
      const auto same = std::find_if(distinct.begin(), distinct.end(),
                                     [call](const FlightCall* c) { return SameCall(*c, *call); });
      const auto index = static_cast<size_t>(same - distinct.begin());
      if (same == distinct.end()) {
        distinct.push_back(call);
        report_.next_calls.push_back({call->ToString(), {}});
      }
      report_.next_calls[index].ranks.push_back(rank);
    }
    // Nobody has issued it: the group is between two collectives.
    if (report_.next_calls.empty()) report_.not_issued.clear();
  }

  // The collective at which a rank was latest, one a rank.
  void FindLate() {
    std::map<int64_t, int64_t> first_ns;
    for (const auto& [rank, record] : records_) {
      for (const FlightCall& call : record->calls) {
        if (call.is_transfer()) continue;
        const int64_t issued = record->WallNs(call.issued_ns);
        const auto [at, is_new] = first_ns.emplace(call.number, issued);
        if (!is_new) at->second = std::min(at->second, issued);
      }
    }
    for (const auto& [rank, record] : records_) {
      LateRank latest;
      for (const FlightCall& call : record->calls) {
        if (call.is_transfer()) continue;
        const double seconds =
            static_cast<double>(record->WallNs(call.issued_ns) - first_ns[call.number]) * 1e-9;
        if (seconds > latest.seconds) latest = {rank, call.number, call.ToString(), seconds};
      }
      if (latest.seconds >= late_seconds_) report_.late.push_back(latest);
    }
  }

  // Those of one rank with one peer, by number.
  std::map<int64_t, const FlightCall*> Transfers(int rank, CollectiveId op, int peer) const {
    std::map<int64_t, const FlightCall*> calls;
    const auto record = records_.find(rank);
    if (record == records_.end()) return calls;
    for (const FlightCall& call : record->second->calls) {
      if (call.signature.op == op && call.signature.peer == peer) calls[call.number] = &call;
    }
    return calls;
  }

  void CompareTransfers(int from, int to) {
    const auto sends = Transfers(from, CollectiveId::kSend, to);
    const auto receives = Transfers(to, CollectiveId::kRecv, from);
    std::optional<int64_t> open;
    for (const auto* calls : {&sends, &receives}) {
      for (const auto& [number, call] : *calls) {
        if (call->state == CallState::kCompleted) continue;
        open = std::min(open.value_or(number), number);
        break;
      }
    }
    if (!open.has_value()) return;
    const auto text = [&open](const std::map<int64_t, const FlightCall*>& calls) {
      const auto call = calls.find(*open);
      return call == calls.end() ? std::string() : call->second->ToString();
    };
    report_.transfers.push_back({from, to, *open, text(sends), text(receives)});
  }

  std::map<int, const FlightRecord*> records_;
  double late_seconds_;
  GroupReport report_;
};

bool IsRecordName(const std::string& name) {
  return absl::StrContains(name, ".rank") && absl::EndsWith(name, ".json");
}

}  // namespace

RecordFolder ReadRecords(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (IsRecordName(it->path().filename().string())) names.push_back(it->path().string());
  }
  if (error) {
    throw NotFoundError(absl::StrCat("cannot read the folder ", folder, ": ", error.message()));
  }
  std::sort(names.begin(), names.end());
  RecordFolder result;
  for (const std::string& name : names) {
    try {
      result.records.push_back(comm::ReadFlightRecord(name));
    } catch (const Error& problem) {
      result.problems.push_back(problem.message());
    }
  }
  return result;
}

Report Analyze(const std::vector<FlightRecord>& records, double late_seconds) {
  std::map<std::pair<std::string, std::string>, std::map<int, const FlightRecord*>> groups;
  for (const FlightRecord& record : records) {
    groups[{record.group, record.key}][record.rank] = &record;
  }
  Report report;
  std::map<int, std::vector<RankWait>> waits;
  for (auto& [name, members] : groups) {
    GroupAnalysis analysis(members, late_seconds);
    report.groups.push_back(analysis.Run());
    analysis.AppendWaits(&waits);
  }
  const auto waits_of = [&waits](int rank) {
    const auto found = waits.find(rank);
    return found == waits.end() ? std::vector<RankWait>() : found->second;
  };
  std::set<std::string> seen;  // each circle is told once, from its lowest rank
  for (const auto& [rank, theirs] : waits) {
    for (const RankWait& wait : theirs) {
      if (!comm::IsCircle(wait, waits_of)) continue;
      const std::string text = comm::ExplainWait(wait, waits_of);
      if (seen.insert(text.substr(text.rfind(": "))).second) report.circles.push_back(text);
    }
  }
  return report;
}

}  // namespace lockstep::flight_recorder
