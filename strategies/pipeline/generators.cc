// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/pipeline/schedule.h"

namespace lockstep::pipeline {
namespace {

constexpr auto kF = ActionKind::kForward;
constexpr auto kB = ActionKind::kBackward;
constexpr auto kI = ActionKind::kBackwardInput;
constexpr auto kW = ActionKind::kBackwardWeight;

void RequirePositive(absl::string_view schedule, absl::string_view what, int value) {
  if (value >= 1) return;
  throw InvalidArgumentError(
      absl::StrCat(schedule, ": ", value, " ", what, "; there must be at least one"));
}

// Lists of more are no schedule of anything, and numbers of them could overflow.
void RequireListable(absl::string_view schedule, int64_t stages, int micro_batches) {
  constexpr int64_t kMostForwards = 1 << 24;
  if (stages <= kMostForwards / micro_batches) return;
  throw InvalidArgumentError(absl::StrCat(schedule, ": ", stages, " stages and ", micro_batches,
                                          " micro-batches are more than ", kMostForwards,
                                          " forwards; give fewer"));
}

// A chain with stage s on rank s, and no actions yet.
Schedule OneStageARank(absl::string_view name, int stages, int micro_batches) {
  RequirePositive(name, "stages", stages);
  RequirePositive(name, "micro-batches", micro_batches);
  RequireListable(name, stages, micro_batches);
  Schedule schedule;
  schedule.name = std::string(name);
  schedule.micro_batches = micro_batches;
  schedule.edges = ChainEdges(stages);
  schedule.rank_of_stage.resize(static_cast<size_t>(stages));
  std::iota(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end(), 0);
  schedule.ranks.resize(static_cast<size_t>(stages));
  return schedule;
}

}  // namespace

Schedule GPipe(int stages, int micro_batches) {
  Schedule schedule = OneStageARank("gpipe", stages, micro_batches);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Action>& list = schedule.ranks[static_cast<size_t>(stage)];
    for (int i = 0; i < micro_batches; ++i) list.push_back({kF, stage, i});
    for (int i = 0; i < micro_batches; ++i) list.push_back({kB, stage, i});
  }
  return schedule;
}

Schedule OneForwardOneBackward(int stages, int micro_batches) {
  Schedule schedule = OneStageARank("1f1b", stages, micro_batches);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Action>& list = schedule.ranks[static_cast<size_t>(stage)];
    int forward = 0;
    while (forward < std::min(stages - 1 - stage, micro_batches)) {
      list.push_back({kF, stage, forward++});
    }
    for (int i = 0; i < micro_batches; ++i) {
      if (forward < micro_batches) list.push_back({kF, stage, forward++});
      list.push_back({kB, stage, i});
    }
  }
  return schedule;
}

Schedule ZeroBubbleH1(int stages, int micro_batches) {
  Schedule schedule = OneStageARank("zb_h1", stages, micro_batches);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Action>& list = schedule.ranks[static_cast<size_t>(stage)];
    int forward = 0;
    int weight = 0;
    while (forward < std::min(stages - 1 - stage, micro_batches)) {
      list.push_back({kF, stage, forward++});
    }
    for (int i = 0; i < micro_batches; ++i) {
      if (forward < micro_batches) list.push_back({kF, stage, forward++});
      list.push_back({kI, stage, i});
      // The later the stage, the fewer the forwards that it ran ahead, and the more Ws it can hold
      // back: they would delay the gradients that earlier stages wait for.
      if (i >= stage) list.push_back({kW, stage, weight++});
    }
    while (weight < micro_batches) list.push_back({kW, stage, weight++});
  }
  return schedule;
}

Schedule Interleaved(int ranks, int stages_per_rank, int micro_batches) {
  RequirePositive("interleaved", "ranks", ranks);
  RequirePositive("interleaved", "micro-batches", micro_batches);
  if (stages_per_rank < 2) {
    throw InvalidArgumentError(absl::StrCat("interleaved: ", stages_per_rank,
                                            " stages a rank; with one, use OneForwardOneBackward"));
  }
  RequireListable("interleaved", int64_t{ranks} * stages_per_rank, micro_batches);
  if (micro_batches % ranks != 0) {
    throw InvalidArgumentError(
        absl::StrCat("interleaved: ", micro_batches, " micro-batches are no multiple of ", ranks,
                     " ranks; use ", micro_batches / ranks * ranks + ranks,
                     " micro-batches, or 1f1b or zb_h1, which take any number"));
  }
  Schedule schedule = OneStageARank("interleaved", ranks * stages_per_rank, micro_batches);
  schedule.ranks.resize(static_cast<size_t>(ranks));
  for (int& rank : schedule.rank_of_stage) rank %= ranks;
  const int total = stages_per_rank * micro_batches;  // of a rank's forwards
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& list = schedule.ranks[static_cast<size_t>(rank)];
    // The n-th forward or backward: `ranks` micro-batches with one of the rank's stages, then the
    // same ones with the next; after the last stage, the next micro-batches.
    const auto add = [&](ActionKind kind, int n) {
      const int round = n / (ranks * stages_per_rank);
      int local = n / ranks % stages_per_rank;
      if (kind == kB) local = stages_per_rank - 1 - local;
      list.push_back({kind, local * ranks + rank, round * ranks + n % ranks});
    };
    int forward = 0;
    const int warm_up = 2 * (ranks - 1 - rank) + (stages_per_rank - 1) * ranks;
    while (forward < std::min(warm_up, total)) add(kF, forward++);
    for (int backward = 0; backward < total; ++backward) {
      if (forward < total) add(kF, forward++);
      add(kB, backward);
    }
  }
  return schedule;
}

Schedule ForwardOnly(std::vector<int> rank_of_stage, int micro_batches) {
  Schedule schedule;
  schedule.name = "forward";
  schedule.forward_only = true;
  schedule.micro_batches = micro_batches;
  const size_t stages = rank_of_stage.size();
  schedule.edges = ChainEdges(static_cast<int>(stages));
  RequirePositive("forward", "stages", static_cast<int>(stages));
  RequirePositive("forward", "micro-batches", micro_batches);
  const auto [least, most] = std::minmax_element(rank_of_stage.begin(), rank_of_stage.end());
  if (*least < 0 || *most >= static_cast<int>(stages)) {
    throw InvalidArgumentError(absl::StrCat("forward: a stage is on rank ",
                                            *least < 0 ? *least : *most, ", with ", stages,
                                            " stages; each rank from 0 must have one"));
  }
  schedule.ranks.resize(static_cast<size_t>(*most) + 1);
  schedule.rank_of_stage = std::move(rank_of_stage);

  // Time goes by in steps of one forward. At each a rank takes, of what has its inputs, the latest
  // stage: what is nearest to its end keeps the least.
  std::vector<int> done(stages, 0);  // Micro-batches of each stage, at the beginning of the step.
  for (int left = static_cast<int>(stages) * micro_batches; left > 0;) {
    const std::vector<int> before = done;
    std::vector<bool> busy(schedule.ranks.size(), false);
    for (size_t stage = stages; stage-- > 0;) {
      const auto rank = static_cast<size_t>(schedule.rank_of_stage[stage]);
      const int available = stage == 0 ? micro_batches : before[stage - 1];
      if (busy[rank] || done[stage] == available) continue;
      schedule.ranks[rank].push_back({kF, static_cast<int>(stage), done[stage]++});
      busy[rank] = true;
      --left;
    }
  }
  Validate(schedule);  // A rank without a stage.
  return schedule;
}

}  // namespace lockstep::pipeline
