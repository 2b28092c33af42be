// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/execution_plan.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace lockstep::pipeline {
namespace {

int EdgeOf(const std::vector<StageEdge>& edges, const Action& action) {
  const bool to_peer =
      action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvBackward;
  const StageEdge edge = to_peer ? StageEdge{action.stage, action.peer_stage}
                                 : StageEdge{action.peer_stage, action.stage};
  return static_cast<int>(std::find(edges.begin(), edges.end(), edge) - edges.begin());
}

bool AddsWeightGradients(const Action& action) {
  return action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight;
}

std::vector<std::vector<PlannedAction>> PlanActions(const Schedule& schedule) {
  std::vector<std::vector<PlannedAction>> ranks;
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<PlannedAction>& planned = ranks.emplace_back();
    for (const Action& action : actions) {
      PlannedAction& next = planned.emplace_back(PlannedAction{action});
      if (IsTransfer(action.kind)) next.edge = EdgeOf(schedule.edges, action);
    }
    std::vector<bool> seen(schedule.rank_of_stage.size());
    for (auto it = planned.rbegin(); it != planned.rend(); ++it) {
      if (!AddsWeightGradients(it->action)) continue;
      const auto stage = static_cast<size_t>(it->action.stage);
      it->is_last_backward = !seen[stage];
      it->is_earlier_backward = seen[stage];
      seen[stage] = true;
    }
  }
  return ranks;
}

PlannedStage::Input PlanInput(const ExecutionPlan& plan, const PlannedStage& stage,
                              const InputSource& source) {
  if (source.stage == kBatch) return {-1, source.index};
  for (size_t i = 0; i < stage.incoming.size(); ++i) {
    const auto edge = static_cast<size_t>(stage.incoming[i]);
    if (plan.edges[edge].from != source.stage) continue;
    const std::vector<int>& outputs = plan.edge_outputs[edge];
    const auto place = std::find(outputs.begin(), outputs.end(), source.index);
    return {static_cast<int>(i), static_cast<int>(place - outputs.begin())};
  }
  return {};  // not reached: the edges are the wiring's
}

}  // namespace

ExecutionPlan MakeExecutionPlan(const Schedule& schedule, const Wiring& wiring) {
  ExecutionPlan plan;
  const int stages = schedule.stage_count();
  if (!wiring.empty()) {
    CheckWiring(wiring, schedule.edges, stages);
  } else {
    // Which outputs a skip connection takes is not to be guessed.
    std::vector<std::vector<InputSource>> chain(static_cast<size_t>(stages));
    for (int s = 1; s < stages; ++s) chain[static_cast<size_t>(s)] = {{s - 1, 0}};
    CheckWiring(chain, schedule.edges, stages);
  }
  plan.edges = schedule.edges;
  plan.rank_of_stage = schedule.rank_of_stage;
  plan.micro_batches = schedule.micro_batches;
  plan.stages.resize(static_cast<size_t>(stages));
  for (int s = 0; s < stages; ++s) {
    plan.stages[static_cast<size_t>(s)].stage = s;
    plan.stages[static_cast<size_t>(s)].is_last = s + 1 == stages;
  }
  for (size_t e = 0; e < plan.edges.size(); ++e) {
    const StageEdge& edge = plan.edges[e];
    plan.stages[static_cast<size_t>(edge.from)].outgoing.push_back(static_cast<int>(e));
    plan.stages[static_cast<size_t>(edge.to)].incoming.push_back(static_cast<int>(e));
    if (!wiring.empty()) plan.edge_outputs.push_back(OutputsOnEdge(wiring, edge));
  }
  plan.stages[0].takes_all_of_batch = wiring.empty();
  for (size_t s = 0; s < wiring.size(); ++s) {
    for (const InputSource& source : wiring[s]) {
      if (source.stage == kBatch) plan.stages[s].batch_inputs.insert(source.index);
      plan.stages[s].inputs.push_back(PlanInput(plan, plan.stages[s], source));
    }
  }
  plan.training = PlanActions(schedule);
  Schedule evaluation = ForwardOnly(schedule.rank_of_stage, schedule.micro_batches);
  evaluation.edges = schedule.edges;
  plan.evaluation = PlanActions(WithTransfers(std::move(evaluation)));
  return plan;
}

}  // namespace lockstep::pipeline
