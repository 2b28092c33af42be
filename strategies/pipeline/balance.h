// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Where to cut a model into stages, so that the costliest stage is as cheap as it can be.
//
//   nn::Sequential model = ...;
//   const strategies::BlockList layers = strategies::BlocksOf(model);
//   std::vector<Stage> stages =
//       SplitSequential(model, SplitPoints(strategies::MeasureBlocks(layers, sample), 4));
//
// Costs are those of model_parallel/place_blocks.h (BlockBytes, MeasureBlocks), or your own. The
// slowest stage sets the pace of a pipeline, and the fullest device its memory.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_BALANCE_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_BALANCE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lockstep::pipeline {

// Split points of SplitSequential for `stages` stages whose costliest is the cheapest possible.
// One cost a layer, of any unit. Throws InvalidArgument with the numbers (more stages than layers,
// costs that are negative or not finite), as BalancedPartition does.
std::vector<int64_t> SplitPoints(absl::Span<const double> costs, int stages);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_BALANCE_H_
