// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What waits for what in a schedule: what validation, transfers and simulation share.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_SCHEDULE_INDEX_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_SCHEDULE_INDEX_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "lockstep/strategies/pipeline/schedule.h"

namespace lockstep::pipeline {

// Keeps a reference to the schedule, whose placement and edges are in range.
class ScheduleIndex {
 public:
  explicit ScheduleIndex(const Schedule& schedule);

  // Stages that `stage` takes inputs from, and gives outputs to, ascending.
  const std::vector<int>& inputs(int stage) const { return inputs_[static_cast<size_t>(stage)]; }
  const std::vector<int>& outputs(int stage) const { return outputs_[static_cast<size_t>(stage)]; }

  int RankOf(int stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)]; }
  bool has_transfers() const { return has_transfers_; }

  // Where the action stands in the list of its stage's rank; of equal ones the first. -1 if
  // nowhere.
  int Position(const Action& action) const;
  // B or I of a micro-batch, whichever the schedule has; B where it has neither.
  Action InputGradient(int stage, int micro_batch) const;

  // What the actions of other ranks, and of this one, must have done before this one: computations,
  // or where there are transfers and the ranks differ, the SENDs to this rank. None for transfers.
  absl::InlinedVector<Action, 4> WaitsFor(const Action& action) const;

  // Calls visit(rank, position) for each action of the schedule, what it waits for first. Returns
  // for each rank how many of its actions could be visited: all, or those before one that waits for
  // ever.
  std::vector<int> Execute(const std::function<void(int rank, int position)>& visit) const;

 private:
  // In `table_`; none for what has no place there.
  std::optional<size_t> SlotOf(const Action& action) const;

  const Schedule& schedule_;
  std::vector<std::vector<int>> inputs_;
  std::vector<std::vector<int>> outputs_;
  // Positions by kind, stage or edge, and micro-batch: most of what is done with a large schedule
  // is to look these up. Empty where the lists are much shorter than that; what is out of range is
  // in `positions_`.
  std::vector<int> table_;
  std::vector<size_t> first_edge_;  // of each stage, among the edges by where they begin
  size_t edges_ = 0;
  absl::flat_hash_map<std::tuple<ActionKind, int, int, int>, int> positions_;
  bool has_transfers_ = false;
};

// Transfers and their other end: 1SEND_F0>2 and 2RECV_F0<1.
Action Counterpart(const Action& transfer);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_SCHEDULE_INDEX_H_
