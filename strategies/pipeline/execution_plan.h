// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a pipeline decides once, at construction, and all runs read. Internal.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_EXECUTION_PLAN_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_EXECUTION_PLAN_H_

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/wiring.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline {

// The loss of one micro-batch: a mean over what it counts, one floating-point element. Of a batch
// without targets it gets one that is undefined, which the first op that takes it refuses by name.
using LossFunction = std::function<Tensor(TensorSpan outputs, TensorSpan targets)>;

// Channels: 2 e carries the outputs on edge e and 2 e + 1 their gradients.
inline int ForwardChannel(int edge) { return 2 * edge; }
inline int BackwardChannel(int edge) { return 2 * edge + 1; }

struct PlannedStage {
  int stage = 0;
  StageFunction forward = nullptr;  // null: another process runs it
  // What `forward` computes with: a thread that does not come back from it outlives the pipeline.
  std::vector<std::shared_ptr<nn::Module>> modules;
  bool is_last = false;
  // Inputs of the batch, by number; in a chain stage 0 takes all that there are.
  bool takes_all_of_batch = false;
  std::set<int> batch_inputs;
  // Edges, ascending in the stage at the other end.
  std::vector<int> incoming, outgoing;
  // Of each input, which incoming edge (its place in `incoming`, -1: the batch) and which tensor of
  // what comes there. Empty in a chain: all that comes.
  struct Input {
    int incoming = -1;
    int position = 0;
  };
  std::vector<Input> inputs;
};

struct PlannedAction {
  Action action;
  int edge = -1;  // of transfers
  // Of its stage, among those that add gradients of weights.
  bool is_last_backward = false;
  bool is_earlier_backward = false;
};

struct ExecutionPlan {
  std::vector<PlannedStage> stages;
  std::vector<StageEdge> edges;
  // Which outputs of edge.from go along; empty in a chain: all.
  std::vector<std::vector<int>> edge_outputs;
  std::vector<int> rank_of_stage;
  int micro_batches = 0;
  std::vector<std::vector<PlannedAction>> training, evaluation;  // of each rank

  int stage_count() const { return static_cast<int>(stages.size()); }
  int channel_count() const { return 2 * static_cast<int>(edges.size()); }
  bool is_chain() const { return edge_outputs.empty(); }
};

// `schedule` has its transfers; its evaluation is ForwardOnly() over the same stages. Throws as
// CheckWiring.
ExecutionPlan MakeExecutionPlan(const Schedule& schedule, const Wiring& wiring);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_EXECUTION_PLAN_H_
