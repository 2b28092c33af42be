// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Where to cut a model into stages, so that the costliest stage is as cheap as it can be.
//
//   nn::Sequential model = ...;
//   std::vector<Stage> stages =
//       SplitSequential(model, SplitPoints(MeasureLayerSeconds(model, sample), 4));
//
// The slowest stage sets the pace of a pipeline, and the fullest device its memory.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_BALANCE_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_BALANCE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/nn/containers.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline {

// Split points of SplitSequential for `stages` stages whose costliest is the cheapest possible.
// One cost a layer, of any unit. Throws InvalidArgument with the numbers (more stages than layers,
// costs that are negative or not finite), as BalancedPartition does.
std::vector<int64_t> SplitPoints(absl::Span<const double> costs, int stages);

// Costs of 1: as many layers in each stage, earlier ones have the rest.
std::vector<double> CountLayers(const nn::Sequential& model);

// Bytes of each layer's parameters and buffers.
std::vector<double> LayerBytes(const nn::Sequential& model);

struct MeasureOptions {
  int repeats = 3;  // the fastest counts; one more runs before them
};
// Seconds of each layer's forward and backward on `sample`, one micro-batch, here and now: with
// this thread's autocast and threads, and the modules' modes. Gradients that the parameters have,
// and this thread's random streams, are as before afterwards. Throws InvalidArgument for repeats
// below 1, and what the layers throw.
std::vector<double> MeasureLayerSeconds(const nn::Sequential& model, const Tensor& sample,
                                        const MeasureOptions& options = {});

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_BALANCE_H_
