// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which output of which stage is which input of which.
//
//   // Three stages; the last also gets output 1 of the first (a skip connection) and the second
//   // input of the batch (a mask).
//   Wiring wiring = {{{kBatch, 0}}, {{0, 0}}, {{1, 0}, {0, 1}, {kBatch, 1}}};
//   schedule.edges = EdgesOf(wiring);             // 0>1, 0>2, 1>2
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_WIRING_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_WIRING_H_

#include <vector>

#include "lockstep/strategies/pipeline/schedule.h"

namespace lockstep::pipeline {

inline constexpr int kBatch = -1;

// Output `index` of stage `stage`; for kBatch, input `index` of the batch.
struct InputSource {
  int stage = kBatch;
  int index = 0;

  friend bool operator==(const InputSource&, const InputSource&) = default;
};

// The sources of each stage's inputs, in order: wiring[stage][input]. Empty: a chain, in which
// stage 0 gets all inputs of the batch and every other stage all outputs of the one before,
// however many there are.
using Wiring = std::vector<std::vector<InputSource>>;

// The edges that the wiring has, sorted.
std::vector<StageEdge> EdgesOf(const Wiring& wiring);

// The outputs of edge.from that stage edge.to takes, each once, in the order of its inputs.
std::vector<int> OutputsOnEdge(const Wiring& wiring, const StageEdge& edge);

// Throws InvalidArgument unless there is a list for each stage, sources are earlier stages, indices
// are not negative, and `edges` (the schedule's) are the wiring's.
void CheckWiring(const Wiring& wiring, const std::vector<StageEdge>& edges, int stages);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_WIRING_H_
