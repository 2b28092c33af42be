// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/pipeline/schedule_index.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "lockstep/strategies/pipeline/schedule.h"

namespace lockstep::pipeline {
namespace {

auto Key(const Action& action) {
  return std::make_tuple(action.kind, action.stage, action.micro_batch, action.peer_stage);
}

}  // namespace

ScheduleIndex::ScheduleIndex(const Schedule& schedule)
    : schedule_(schedule),
      inputs_(schedule.rank_of_stage.size()),
      outputs_(schedule.rank_of_stage.size()) {
  for (const StageEdge& edge : schedule.edges) {
    inputs_[static_cast<size_t>(edge.to)].push_back(edge.from);
    outputs_[static_cast<size_t>(edge.from)].push_back(edge.to);
  }
  size_t actions_in_all = 0;
  for (const std::vector<Action>& actions : schedule.ranks) actions_in_all += actions.size();
  for (const std::vector<int>& outputs : outputs_) {
    first_edge_.push_back(edges_);
    edges_ += outputs.size();
  }
  const double slots =
      4.0 * static_cast<double>(outputs_.size() + edges_) * std::max(0, schedule.micro_batches);
  if (slots <= 8.0 * static_cast<double>(actions_in_all) + 1024) {
    table_.resize(static_cast<size_t>(slots), -1);
  }
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (size_t i = 0; i < actions.size(); ++i) {
      if (const std::optional<size_t> slot = SlotOf(actions[i]); slot.has_value()) {
        if (table_[*slot] < 0) table_[*slot] = static_cast<int>(i);
      } else {
        positions_.emplace(Key(actions[i]), static_cast<int>(i));
      }
      has_transfers_ = has_transfers_ || IsTransfer(actions[i].kind);
    }
  }
}

std::optional<size_t> ScheduleIndex::SlotOf(const Action& action) const {
  const auto stages = static_cast<int>(outputs_.size());
  const int micro_batches = schedule_.micro_batches;
  if (table_.empty() || action.micro_batch < 0 || action.micro_batch >= micro_batches ||
      action.stage < 0 || action.stage >= stages) {
    return std::nullopt;
  }
  const auto kind = static_cast<size_t>(action.kind);
  size_t row = 0;
  if (!IsTransfer(action.kind)) {
    if (action.peer_stage != -1) return std::nullopt;
    row = kind * outputs_.size() + static_cast<size_t>(action.stage);
  } else {
    const int from = std::min(action.stage, action.peer_stage);
    const int to = std::max(action.stage, action.peer_stage);
    if (from < 0 || to >= stages) return std::nullopt;
    const std::vector<int>& ends = outputs_[static_cast<size_t>(from)];
    const auto end = std::find(ends.begin(), ends.end(), to);
    if (end == ends.end()) return std::nullopt;
    // Of the edge's two directions, F and B, and of SEND and RECV: the stage may be either end.
    const bool goes_up = action.stage == to;
    const auto transfer = kind - static_cast<size_t>(ActionKind::kSendForward);
    const bool natural = (action.kind == ActionKind::kRecvForward ||
                          action.kind == ActionKind::kSendBackward) == goes_up;
    if (!natural) return std::nullopt;  // a SEND_F to an earlier stage
    row = 4 * outputs_.size() + transfer * edges_ + first_edge_[static_cast<size_t>(from)] +
          static_cast<size_t>(end - ends.begin());
  }
  return row * static_cast<size_t>(micro_batches) + static_cast<size_t>(action.micro_batch);
}

int ScheduleIndex::Position(const Action& action) const {
  if (const std::optional<size_t> slot = SlotOf(action); slot.has_value()) return table_[*slot];
  const auto found = positions_.find(Key(action));
  return found == positions_.end() ? -1 : found->second;
}

Action ScheduleIndex::InputGradient(int stage, int micro_batch) const {
  const Action split{ActionKind::kBackwardInput, stage, micro_batch};
  if (Position(split) >= 0) return split;
  return {ActionKind::kBackward, stage, micro_batch};
}

absl::InlinedVector<Action, 4> ScheduleIndex::WaitsFor(const Action& action) const {
  const int stage = action.stage;
  const int micro_batch = action.micro_batch;
  const auto over_link = [&](int other) {
    return has_transfers_ && RankOf(other) != RankOf(stage);
  };
  absl::InlinedVector<Action, 4> result;
  switch (action.kind) {
    case ActionKind::kForward:
      for (const int from : inputs(stage)) {
        if (over_link(from)) {
          result.push_back({ActionKind::kSendForward, from, micro_batch, stage});
        } else {
          result.push_back({ActionKind::kForward, from, micro_batch});
        }
      }
      break;
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      result.push_back({ActionKind::kForward, stage, micro_batch});
      for (const int to : outputs(stage)) {
        if (over_link(to)) {
          result.push_back({ActionKind::kSendBackward, to, micro_batch, stage});
        } else {
          result.push_back(InputGradient(to, micro_batch));
        }
      }
      break;
    case ActionKind::kBackwardWeight:
      result.push_back({ActionKind::kBackwardInput, stage, micro_batch});
      break;
    default:
      break;
  }
  return result;
}

std::vector<int> ScheduleIndex::Execute(
    const std::function<void(int rank, int position)>& visit) const {
  std::vector<int> done(schedule_.ranks.size(), 0);
  const auto can_run = [&](const Action& action) {
    const auto needs = WaitsFor(action);
    return std::all_of(needs.begin(), needs.end(), [&](const Action& need) {
      const int position = Position(need);
      return position >= 0 && position < done[static_cast<size_t>(RankOf(need.stage))];
    });
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t rank = 0; rank < done.size(); ++rank) {
      const std::vector<Action>& actions = schedule_.ranks[rank];
      while (done[rank] < static_cast<int>(actions.size()) &&
             can_run(actions[static_cast<size_t>(done[rank])])) {
        visit(static_cast<int>(rank), done[rank]);
        ++done[rank];
        progress = true;
      }
    }
  }
  return done;
}

Action Counterpart(const Action& transfer) {
  Action result = transfer;
  std::swap(result.stage, result.peer_stage);
  switch (transfer.kind) {
    case ActionKind::kSendForward:
      result.kind = ActionKind::kRecvForward;
      break;
    case ActionKind::kRecvForward:
      result.kind = ActionKind::kSendForward;
      break;
    case ActionKind::kSendBackward:
      result.kind = ActionKind::kRecvBackward;
      break;
    default:
      result.kind = ActionKind::kSendBackward;
      break;
  }
  return result;
}

}  // namespace lockstep::pipeline
