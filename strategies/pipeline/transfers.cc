// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/schedule_index.h"

namespace lockstep::pipeline {
namespace {

// A RECV and the computation of its rank before which it stands.
struct PlacedRecv {
  Action action;
  int before = 0;
};

// What leaves the rank after a computation, in the order of peers.
std::vector<Action> SendsAfter(const ScheduleIndex& index, const Action& action) {
  const bool forward = action.kind == ActionKind::kForward;
  if (!forward && action.kind == ActionKind::kBackwardWeight) return {};
  std::vector<Action> sends;
  for (const int peer : forward ? index.outputs(action.stage) : index.inputs(action.stage)) {
    if (index.RankOf(peer) == index.RankOf(action.stage)) continue;
    sends.push_back({forward ? ActionKind::kSendForward : ActionKind::kSendBackward, action.stage,
                     action.micro_batch, peer});
  }
  return sends;
}

// The computation that uses what the RECV brings.
Action UserOf(const ScheduleIndex& index, const Action& recv) {
  if (recv.kind == ActionKind::kRecvBackward) {
    return index.InputGradient(recv.stage, recv.micro_batch);
  }
  return {ActionKind::kForward, recv.stage, recv.micro_batch};
}

// Receives of each rank: `recvs[rank][i]` stand before computation i.
std::vector<std::vector<std::vector<Action>>> PlaceRecvs(const Schedule& schedule,
                                                         const ScheduleIndex& index) {
  std::vector<std::vector<std::vector<Action>>> result;
  for (const std::vector<Action>& list : schedule.ranks) result.emplace_back(list.size());
  for (size_t from = 0; from < schedule.ranks.size(); ++from) {
    std::map<int, std::vector<PlacedRecv>> by_receiver;
    for (const Action& action : schedule.ranks[from]) {
      for (const Action& send : SendsAfter(index, action)) {
        const Action recv = Counterpart(send);
        const int ahead = std::max(0, index.Position(UserOf(index, recv)) - 1);
        by_receiver[index.RankOf(recv.stage)].push_back({recv, ahead});
      }
    }
    for (auto& [to, recvs] : by_receiver) {
      // One that is sent earlier is received earlier, also when it is used later.
      for (size_t i = recvs.size(); i-- > 1;) {
        recvs[i - 1].before = std::min(recvs[i - 1].before, recvs[i].before);
      }
      for (const PlacedRecv& recv : recvs) {
        result[static_cast<size_t>(to)][static_cast<size_t>(recv.before)].push_back(recv.action);
      }
    }
  }
  return result;
}

}  // namespace

Schedule WithTransfers(Schedule schedule) {
  for (std::vector<Action>& list : schedule.ranks) {
    std::erase_if(list, [](const Action& action) { return IsTransfer(action.kind); });
  }
  Validate(schedule);
  const ScheduleIndex index(schedule);
  const auto recvs = PlaceRecvs(schedule, index);
  std::vector<std::vector<Action>> ranks(schedule.ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<Action>& list = ranks[rank];
    for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      list.insert(list.end(), recvs[rank][i].begin(), recvs[rank][i].end());
      list.push_back(schedule.ranks[rank][i]);
      const std::vector<Action> sends = SendsAfter(index, list.back());
      list.insert(list.end(), sends.begin(), sends.end());
    }
  }
  schedule.ranks = std::move(ranks);
  return schedule;
}

}  // namespace lockstep::pipeline
