// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/stage.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"

namespace lockstep::pipeline {

Stage MakeStage(std::string path, std::shared_ptr<nn::UnaryModule> module) {
  if (module == nullptr) {
    throw InvalidArgumentError(absl::StrCat("MakeStage: the module of \"", path, "\" is null"));
  }
  Stage stage;
  stage.forward = [module](TensorSpan inputs) -> TensorList {
    if (inputs.size() != 1) {
      throw InvalidArgumentError(absl::StrCat(
          "a stage of one module takes 1 input and got ", inputs.size(),
          "; write the stage's forward by hand, as strategies/pipeline/stage.h shows"));
    }
    return {(*module)(inputs[0])};
  };
  stage.parts.emplace_back(std::move(path), std::move(module));
  return stage;
}

std::vector<Stage> SplitSequential(const nn::Sequential& model,
                                   absl::Span<const int64_t> split_points) {
  const auto layers = static_cast<int64_t>(model.size());
  int64_t previous = 0;
  for (const int64_t point : split_points) {
    if (point <= previous || point >= layers) {
      throw InvalidArgumentError(absl::StrCat("SplitSequential: split points ",
                                              absl::StrJoin(split_points, ", "), " of ", layers,
                                              " layers: they rise, from 1 to ", layers - 1));
    }
    previous = point;
  }
  std::vector<Stage> stages;
  int64_t begin = 0;
  for (size_t s = 0; s <= split_points.size(); ++s) {
    const int64_t end = s < split_points.size() ? split_points[s] : layers;
    Stage stage;
    std::vector<std::shared_ptr<nn::UnaryModule>> modules;
    for (int64_t i = begin; i < end; ++i) {
      modules.push_back(model[static_cast<size_t>(i)]);
      stage.parts.emplace_back(absl::StrCat(i), modules.back());
    }
    stage.forward = [modules](TensorSpan inputs) -> TensorList {
      if (inputs.size() != 1) {
        throw InvalidArgumentError(absl::StrCat(
            "a stage of a Sequential takes 1 input and got ", inputs.size(),
            "; write the stage's forward by hand, as strategies/pipeline/stage.h shows"));
      }
      Tensor x = inputs[0];
      for (const auto& module : modules) x = (*module)(x);
      return {x};
    };
    stages.push_back(std::move(stage));
    begin = end;
  }
  return stages;
}

}  // namespace lockstep::pipeline
