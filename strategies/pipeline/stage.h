// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Stage: a part of a model that one rank of a pipeline computes. Any number of tensors in and out.
//
//   // By hand, with the names that the parts have in the unsplit model:
//   Stage first = {.parts = {{"encoder.0", embedding}, {"encoder.1", block}},
//                  .forward = [=](TensorSpan in) -> TensorList {
//                    return {(*block)((*embedding)(in[0])), in[1]};
//                  }};
//
//   // Cut from a Sequential: layers 0-2, 3 and 4 of five.
//   std::vector<Stage> stages = SplitSequential(model, {3, 4});     // "0.weight" ... "4.bias"
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_STAGE_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_STAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline {

// The outputs for one micro-batch's inputs, on the stage's device. Called for one micro-batch at a
// time, always under the thread state of the caller of Pipeline::Step (autocast, recording), with
// the stage's device and random streams. Must not change its inputs in place.
using StageFunction = std::function<TensorList(TensorSpan inputs)>;

struct Stage {
  // What `forward` computes with, each under its path in the unsplit model ("transformer.h.3"). No
  // path is part of another. Empty for a stage without parameters.
  std::vector<std::pair<std::string, std::shared_ptr<nn::Module>>> parts = {};
  StageFunction forward = nullptr;
  // Of a stage that keeps a part of its parameters (sharded_stage.h): which is the first element of
  // the named one that this rank has. Null: has them whole.
  std::function<int64_t(const std::string& name)> first_element = nullptr;
};

// A stage of one module. Throws InvalidArgument for null.
Stage MakeStage(std::string path, std::shared_ptr<nn::UnaryModule> module);

// One stage more than there are split points: stage s has the layers from split point s - 1 up to,
// not including, split point s. They are the model's own, under its names. Hooks of `model` itself
// do not run. Throws InvalidArgument unless the split points rise within [1, layers - 1].
std::vector<Stage> SplitSequential(const nn::Sequential& model,
                                   absl::Span<const int64_t> split_points);
inline std::vector<Stage> SplitSequential(const nn::Sequential& model,
                                          std::initializer_list<int64_t> split_points) {
  return SplitSequential(model, absl::MakeConstSpan(split_points.begin(), split_points.size()));
}

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_STAGE_H_
