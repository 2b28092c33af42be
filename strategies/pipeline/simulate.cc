// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/pipeline/simulate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/pipeline/schedule_index.h"

namespace lockstep::pipeline {
namespace {

template <typename... Parts>
[[noreturn]] void Refuse(const Parts&... parts) {
  throw InvalidArgumentError(absl::StrCat("Simulate: ", parts...));
}

void CheckCost(absl::string_view what, double value) {
  if (!(value >= 0) || !std::isfinite(value)) {
    Refuse(what, " cost ", value, ": costs are finite and not negative");
  }
}

void CheckCompute(const std::string& whose, const ComputeSeconds& seconds) {
  CheckCost(absl::StrCat("forward of ", whose), seconds.forward);
  CheckCost(absl::StrCat("backward_input of ", whose), seconds.backward_input);
  CheckCost(absl::StrCat("backward_weight of ", whose), seconds.backward_weight);
}

void CheckLink(const std::string& whose, const Link& link) {
  CheckCost(absl::StrCat("latency of ", whose), link.latency_seconds);
  if (!(link.bytes_per_second > 0)) {
    Refuse("the bandwidth of ", whose, " is ", link.bytes_per_second, " bytes/s");
  }
}

void CheckStages(const Schedule& schedule, const Costs& costs) {
  if (static_cast<int>(costs.stages.size()) != schedule.stage_count()) {
    Refuse("costs of ", costs.stages.size(), " stages, and schedule \"", schedule.name, "\" has ",
           schedule.stage_count());
  }
  for (size_t stage = 0; stage < costs.stages.size(); ++stage) {
    const StageCosts& cost = costs.stages[stage];
    const std::string whose = absl::StrCat("stage ", stage);
    CheckCompute(whose, cost.compute);
    CheckCost(absl::StrCat("activation_bytes of ", whose), cost.activation_bytes);
    CheckCost(absl::StrCat("static_bytes of ", whose), cost.static_bytes);
    if (!(cost.share_freed_by_input >= 0 && cost.share_freed_by_input <= 1)) {
      Refuse("share_freed_by_input of ", whose, " is ", cost.share_freed_by_input, ", not 0 to 1");
    }
  }
  for (const auto& [key, seconds] : costs.micro_batches) {
    const auto [stage, micro_batch] = key;
    const std::string whose = absl::StrCat("stage ", stage, ", micro-batch ", micro_batch);
    if (stage < 0 || stage >= schedule.stage_count() || micro_batch < 0 ||
        micro_batch >= schedule.micro_batches) {
      Refuse("costs of ", whose, ", and schedule \"", schedule.name, "\" has ",
             schedule.stage_count(), " stages and ", schedule.micro_batches, " micro-batches");
    }
    CheckCompute(whose, seconds);
  }
}

void CheckTransfers(const Schedule& schedule, const Costs& costs) {
  for (const auto& [key, bytes] : costs.edge_bytes) {
    const StageEdge edge{key.first, key.second};
    const std::string whose = absl::StrCat("edge ", edge.from, ">", edge.to);
    if (std::find(schedule.edges.begin(), schedule.edges.end(), edge) == schedule.edges.end()) {
      Refuse("bytes of ", whose, ", which schedule \"", schedule.name, "\" has not");
    }
    CheckCost(absl::StrCat("bytes of ", whose), bytes);
  }
  CheckLink("any link", costs.link);
  for (const auto& [key, link] : costs.links) {
    const auto [from, to] = key;
    const std::string whose = absl::StrCat("the link from rank ", from, " to rank ", to);
    if (std::min(from, to) < 0 || std::max(from, to) >= schedule.rank_count() || from == to) {
      Refuse("costs of ", whose, ", and there are ", schedule.rank_count(), " ranks");
    }
    CheckLink(whose, link);
  }
}

bool HasTransfers(const Schedule& schedule) {
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [](const auto& list) {
    return std::any_of(list.begin(), list.end(),
                       [](const Action& action) { return IsTransfer(action.kind); });
  });
}

// The state of a simulated run. Actions are visited in an order in which what each waits for has
// been visited before.
class Run {
 public:
  Run(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule), costs_(costs), index_(schedule), clock_(schedule.ranks.size(), 0.0) {}

  std::vector<Span> Spans() {
    index_.Execute([this](int rank, int position) {
      const Action& action =
          schedule_.ranks[static_cast<size_t>(rank)][static_cast<size_t>(position)];
      if (IsTransfer(action.kind)) {
        Start(action);
      } else {
        Compute(rank, action);
      }
    });
    return std::move(spans_);
  }

 private:
  using Key = std::tuple<ActionKind, int, int, int>;
  static Key KeyOf(const Action& a) { return {a.kind, a.stage, a.micro_batch, a.peer_stage}; }

  double Seconds(const Action& action) const {
    const auto found = costs_.micro_batches.find({action.stage, action.micro_batch});
    const ComputeSeconds& seconds = found != costs_.micro_batches.end()
                                        ? found->second
                                        : costs_.stages[static_cast<size_t>(action.stage)].compute;
    const bool is_half =
        action.kind == ActionKind::kBackwardInput || action.kind == ActionKind::kBackwardWeight;
    if (is_half && seconds.only_whole_backward) {
      Refuse("what ", ToString(action),
             " takes is not known, only what a whole B does; measure a "
             "run that divides backwards (ZB-H1), or give MeasuredCosts the share of W");
    }
    switch (action.kind) {
      case ActionKind::kForward:
        return seconds.forward;
      case ActionKind::kBackwardInput:
        return seconds.backward_input;
      case ActionKind::kBackwardWeight:
        return seconds.backward_weight;
      default:
        return seconds.backward_input + seconds.backward_weight;
    }
  }

  void Compute(int rank, const Action& action) {
    double& clock = clock_[static_cast<size_t>(rank)];
    double start = clock;
    // What waits is there: when a SEND's data arrived, or when a computation of this rank ended.
    for (const Action& need : index_.WaitsFor(action)) {
      start = std::max(start, ready_.at(KeyOf(need)));
    }
    clock = start + Seconds(action);
    ready_[KeyOf(action)] = clock;
    spans_.push_back({rank, action, start, clock});
  }

  // A SEND or RECV was started: with its other end started too, the transfer begins.
  void Start(const Action& action) {
    const double now = clock_[static_cast<size_t>(index_.RankOf(action.stage))];
    const Action other = Counterpart(action);
    const auto begun = started_.find(KeyOf(other));
    if (begun == started_.end()) {
      started_[KeyOf(action)] = now;
      return;
    }
    const bool sends =
        action.kind == ActionKind::kSendForward || action.kind == ActionKind::kSendBackward;
    const Action& send = sends ? action : other;
    const std::pair ranks(index_.RankOf(send.stage), index_.RankOf(send.peer_stage));
    const auto own = costs_.links.find(ranks);
    const Link& link = own != costs_.links.end() ? own->second : costs_.link;
    double start = std::max(now, begun->second);
    if (link.serial) start = std::max(start, link_free_[ranks]);
    const double left = start + Bytes(send) / link.bytes_per_second;
    link_free_[ranks] = left;
    ready_[KeyOf(send)] = left + link.latency_seconds;
    spans_.push_back({ranks.first, send, start, left + link.latency_seconds});
  }

  double Bytes(const Action& send) const {
    const std::pair edge = std::minmax(send.stage, send.peer_stage);
    const auto found = costs_.edge_bytes.find(edge);
    return found == costs_.edge_bytes.end() ? 0 : found->second;
  }

  const Schedule& schedule_;
  const Costs& costs_;
  const ScheduleIndex index_;
  std::vector<double> clock_;                 // of each rank: the end of its last computation
  absl::flat_hash_map<Key, double> ready_;    // computations that ended, SENDs that arrived
  absl::flat_hash_map<Key, double> started_;  // transfers whose other end was not yet
  std::map<std::pair<int, int>, double> link_free_;
  std::vector<Span> spans_;
};

}  // namespace

Costs UniformCosts(int stages, const ComputeSeconds& compute) {
  Costs costs;
  costs.stages.resize(static_cast<size_t>(std::max(0, stages)), {.compute = compute});
  return costs;
}

Costs MeasuredCosts(const Timeline& measured, std::optional<double> weight_share) {
  if (weight_share.has_value() && !(*weight_share >= 0 && *weight_share <= 1)) {
    throw InvalidArgumentError(
        absl::StrCat("MeasuredCosts: weight_share is ", *weight_share, ", not 0 to 1"));
  }
  Costs costs;
  for (const Span& span : measured.spans) {
    if (IsTransfer(span.action.kind)) continue;
    const auto stages = static_cast<size_t>(span.action.stage) + 1;
    costs.stages.resize(std::max(costs.stages.size(), stages));
    ComputeSeconds& seconds = costs.micro_batches[{span.action.stage, span.action.micro_batch}];
    const double duration = span.end_seconds - span.start_seconds;
    if (span.action.kind == ActionKind::kForward) {
      seconds.forward = duration;
    } else if (span.action.kind == ActionKind::kBackwardWeight) {
      seconds.backward_weight = duration;
    } else if (span.action.kind == ActionKind::kBackwardInput) {
      seconds.backward_input = duration;
    } else {
      const double weight = weight_share.value_or(0) * duration;
      seconds.backward_input = duration - weight;
      seconds.backward_weight = weight;
      seconds.only_whole_backward = !weight_share.has_value();
    }
  }
  return costs;
}

Timeline Simulate(const Schedule& schedule, const Costs& costs) {
  const bool has_transfers = HasTransfers(schedule);
  if (has_transfers) Validate(schedule);
  const Schedule whole = has_transfers ? schedule : WithTransfers(schedule);  // validates, too
  CheckStages(schedule, costs);
  CheckTransfers(schedule, costs);
  Timeline timeline = MakeTimeline(Run(whole, costs).Spans(), schedule.rank_count());
  timeline.name = schedule.name;
  timeline.peak_bytes = PeakBytes(timeline, costs.stages);
  return timeline;
}

}  // namespace lockstep::pipeline
