// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/pipeline/schedule_index.h"

#include <algorithm>
#include <cstddef>
#include <functional>
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
  positions_.reserve(actions_in_all);
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (size_t i = 0; i < actions.size(); ++i) {
      positions_.emplace(Key(actions[i]), static_cast<int>(i));
      has_transfers_ = has_transfers_ || IsTransfer(actions[i].kind);
    }
  }
}

int ScheduleIndex::Position(const Action& action) const {
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
