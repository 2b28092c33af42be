// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/pipeline/random_schedule.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/strategies/pipeline/schedule.h"

namespace lockstep::pipeline {
namespace {

constexpr auto kF = ActionKind::kForward;
constexpr auto kB = ActionKind::kBackward;
constexpr auto kI = ActionKind::kBackwardInput;
constexpr auto kW = ActionKind::kBackwardWeight;

// std::uniform_int_distribution differs between standard libraries.
int Below(int limit, std::mt19937& random) {
  return static_cast<int>(random() % static_cast<unsigned>(limit));
}

template <typename T>
void Shuffle(std::vector<T>* items, std::mt19937& random) {
  for (size_t i = items->size(); i > 1; --i) {
    std::swap((*items)[i - 1], (*items)[static_cast<size_t>(Below(static_cast<int>(i), random))]);
  }
}

// What has run, and what may run next.
class Progress {
 public:
  Progress(const Schedule& schedule, const RandomScheduleOptions& options)
      : schedule_(schedule), options_(options) {}

  // B is I and W.
  void Done(const Action& action) {
    const std::pair of(action.stage, action.micro_batch);
    done_.insert({action.kind == kB ? kI : action.kind, of});
    if (action.kind == kB) done_.insert({kW, of});
  }

  bool MayRun(const Action& action) const {
    const int stage = action.stage;
    const int i = action.micro_batch;
    if (options_.ordered && i > 0) {
      if (action.kind == kF && !Has(kF, stage, i - 1)) return false;
      if ((action.kind == kB || action.kind == kW) && !Has(kW, stage, i - 1)) return false;
    }
    if (action.kind == kW) return Has(kI, stage, i);
    if (action.kind != kF && !Has(kF, stage, i)) return false;
    return std::all_of(schedule_.edges.begin(), schedule_.edges.end(), [&](const StageEdge& edge) {
      if (action.kind == kF) return edge.to != stage || Has(kF, edge.from, i);
      return edge.from != stage || Has(kI, edge.to, i);
    });
  }

 private:
  bool Has(ActionKind kind, int stage, int micro_batch) const {
    return done_.count({kind, {stage, micro_batch}}) > 0;
  }

  const Schedule& schedule_;
  const RandomScheduleOptions& options_;
  std::set<std::pair<ActionKind, std::pair<int, int>>> done_;
};

}  // namespace

std::vector<StageEdge> RandomEdges(int stages, std::mt19937& random) {
  std::vector<StageEdge> edges;
  for (int from = 0; from < stages; ++from) {
    for (int to = from + 1; to < stages; ++to) {
      const bool chain = to == from + 1;
      const int of_four = Below(4, random);
      if (chain ? of_four > 0 : of_four == 0) edges.push_back({from, to});
    }
  }
  for (int stage = 0; stage < stages; ++stage) {
    const auto any = [&](auto&& is) { return std::any_of(edges.begin(), edges.end(), is); };
    if (stage > 0 && !any([&](const StageEdge& edge) { return edge.to == stage; })) {
      edges.push_back({Below(stage, random), stage});
    }
    if (stage + 1 < stages && !any([&](const StageEdge& edge) { return edge.from == stage; })) {
      edges.push_back({stage, stages - 1});
    }
  }
  std::sort(edges.begin(), edges.end(), [](const StageEdge& a, const StageEdge& b) {
    return std::pair(a.from, a.to) < std::pair(b.from, b.to);
  });
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

Schedule RandomSchedule(const RandomScheduleOptions& options, std::mt19937& random) {
  Schedule schedule;
  schedule.name = "random";
  schedule.micro_batches = options.micro_batches;
  schedule.forward_only = options.forward_only;
  schedule.edges = options.edges.empty() ? ChainEdges(options.stages) : options.edges;
  schedule.ranks.resize(static_cast<size_t>(options.ranks));
  for (int stage = 0; stage < options.stages; ++stage) {
    schedule.rank_of_stage.push_back(stage < options.ranks ? stage : Below(options.ranks, random));
  }
  Shuffle(&schedule.rank_of_stage, random);

  std::vector<Action> left;
  for (int stage = 0; stage < options.stages; ++stage) {
    for (int i = 0; i < options.micro_batches; ++i) {
      left.push_back({kF, stage, i});
      if (options.forward_only) continue;
      if (options.split_backward && Below(2, random) == 0) {
        left.push_back({kI, stage, i});
        left.push_back({kW, stage, i});
      } else {
        left.push_back({kB, stage, i});
      }
    }
  }
  Progress progress(schedule, options);
  while (!left.empty()) {
    Shuffle(&left, random);
    const auto next = std::find_if(left.begin(), left.end(),
                                   [&](const Action& action) { return progress.MayRun(action); });
    progress.Done(*next);
    const int rank = schedule.rank_of_stage[static_cast<size_t>(next->stage)];
    schedule.ranks[static_cast<size_t>(rank)].push_back(*next);
    left.erase(next);
  }
  return schedule;
}

}  // namespace lockstep::pipeline
