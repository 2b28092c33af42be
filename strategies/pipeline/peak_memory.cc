// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What simulate.h says of memory: the bytes that ranks keep depend on the order of their own
// actions only, not on times.

#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/pipeline/simulate.h"

namespace lockstep::pipeline {
namespace {

// All digits of a number of bytes.
std::string Digits(double bytes) { return absl::StrFormat("%.15g", bytes); }

// Of one rank, from its actions in their order.
class KeptBytes {
 public:
  explicit KeptBytes(const std::vector<StageCosts>& stages)
      : stages_(stages), in_flight_(stages.size()) {}

  // First all actions, in any order: static bytes, and what a backward will free.
  void Foresee(const Action& action) {
    if (IsTransfer(action.kind)) return;
    if (counted_.insert(action.stage).second) {
      static_bytes_ += stages_[static_cast<size_t>(action.stage)].static_bytes;
    }
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) {
      backward_.emplace(action.stage, action.micro_batch);
    }
    now_ = peak_ = static_bytes_;
  }

  void Do(const Action& action) {
    const auto stage = static_cast<size_t>(action.stage);
    const double all = stages_[stage].activation_bytes;
    const double freed_by_input = stages_[stage].share_freed_by_input * all;
    switch (action.kind) {
      case ActionKind::kForward:
        now_ += all;
        ++in_flight_[stage];
        if (now_ > peak_) {
          peak_ = now_;
          peak_action_ = action;
          peak_in_flight_ = in_flight_;
        }
        if (backward_.count({action.stage, action.micro_batch}) == 0) {
          now_ -= all;
          --in_flight_[stage];
        }
        break;
      case ActionKind::kBackward:
        now_ -= all;
        --in_flight_[stage];
        break;
      case ActionKind::kBackwardInput:
        now_ -= freed_by_input;
        break;
      case ActionKind::kBackwardWeight:
        now_ -= all - freed_by_input;
        --in_flight_[stage];
        break;
      default:
        break;
    }
  }

  double peak() const { return peak_; }

  // "30 bytes at 0F2: 10 always, and the activations of 2 micro-batches at stage 0".
  std::string Describe() const {
    if (peak_in_flight_.empty()) return absl::StrCat(Digits(peak_), " bytes, always");
    std::vector<std::string> parts;
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      if (peak_in_flight_[stage] == 0) continue;
      parts.push_back(absl::StrCat(peak_in_flight_[stage], " at stage ", stage));
    }
    return absl::StrCat(Digits(peak_), " bytes at ", ToString(peak_action_), ": ",
                        Digits(static_bytes_), " always, and activations of micro-batches, ",
                        absl::StrJoin(parts, ", "));
  }

 private:
  const std::vector<StageCosts>& stages_;
  std::set<int> counted_;
  std::set<std::pair<int, int>> backward_;  // (stage, micro-batch) that B or W frees
  std::vector<int> in_flight_, peak_in_flight_;
  double static_bytes_ = 0, now_ = 0, peak_ = 0;
  Action peak_action_;
};

template <typename... Parts>
[[noreturn]] void Refuse(const Parts&... parts) {
  throw InvalidArgumentError(absl::StrCat("CheckMemory: ", parts...));
}

void CheckBytes(const Schedule& schedule, const std::vector<StageCosts>& stages,
                const std::vector<double>& limit_bytes) {
  if (static_cast<int>(stages.size()) != schedule.stage_count() ||
      static_cast<int>(limit_bytes.size()) != schedule.rank_count()) {
    Refuse("costs of ", stages.size(), " stages and limits of ", limit_bytes.size(),
           " ranks, and schedule \"", schedule.name, "\" has ", schedule.stage_count(),
           " stages on ", schedule.rank_count(), " ranks");
  }
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const StageCosts& cost = stages[stage];
    for (const double bytes : {cost.activation_bytes, cost.static_bytes}) {
      if (!(bytes >= 0) || !std::isfinite(bytes)) {
        Refuse("stage ", stage, " keeps ", bytes, " bytes: give what is finite, not negative");
      }
    }
    if (!(cost.share_freed_by_input >= 0 && cost.share_freed_by_input <= 1)) {
      Refuse("share_freed_by_input of stage ", stage, " is ", cost.share_freed_by_input,
             ", not 0 to 1");
    }
  }
  for (size_t rank = 0; rank < limit_bytes.size(); ++rank) {
    if (!(limit_bytes[rank] >= 0)) {
      Refuse("the limit of rank ", rank, " is ", limit_bytes[rank], " bytes, not 0 or more");
    }
  }
}

}  // namespace

std::vector<double> PeakBytes(const Timeline& timeline, const std::vector<StageCosts>& stages) {
  if (timeline.peak_in_flight.size() > stages.size()) {
    throw InvalidArgumentError(absl::StrCat("PeakBytes: costs of ", stages.size(),
                                            " stages, and the timeline has ",
                                            timeline.peak_in_flight.size()));
  }
  std::vector<KeptBytes> ranks(static_cast<size_t>(timeline.ranks), KeptBytes(stages));
  for (const Span& span : timeline.spans) {
    ranks[static_cast<size_t>(span.rank)].Foresee(span.action);
  }
  for (const Span& span : timeline.spans) ranks[static_cast<size_t>(span.rank)].Do(span.action);
  std::vector<double> peaks;
  for (const KeptBytes& rank : ranks) peaks.push_back(rank.peak());
  return peaks;
}

void CheckMemory(const Schedule& schedule, const std::vector<StageCosts>& stages,
                 const std::vector<double>& limit_bytes) {
  Validate(schedule);
  CheckBytes(schedule, stages, limit_bytes);
  for (size_t rank = 0; rank < limit_bytes.size(); ++rank) {
    KeptBytes kept(stages);
    for (const Action& action : schedule.ranks[rank]) kept.Foresee(action);
    for (const Action& action : schedule.ranks[rank]) kept.Do(action);
    if (kept.peak() <= limit_bytes[rank]) continue;
    Refuse("schedule \"", schedule.name, "\": rank ", rank, " has ", Digits(limit_bytes[rank]),
           " bytes and keeps ", kept.Describe(),
           ". Give it less of the model (more stages), checkpoint activations, or take a schedule "
           "that keeps fewer micro-batches (1f1b: at most as many as there are stages)");
  }
}

}  // namespace lockstep::pipeline
