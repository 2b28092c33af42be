// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/gpt2_stages.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "lockstep/strategies/model_parallel/place_blocks.h"
#include "lockstep/strategies/pipeline/balance.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::examples {

std::vector<strategies::PlacedModule> PlaceGpt2(const models::Gpt2& model,
                                                absl::Span<const Device> devices) {
  const std::vector<double> costs(model.transformer()->h().size(), 1);
  const std::vector<Device> of_blocks = strategies::PlaceBlocks(costs, devices);
  std::vector<strategies::PlacedModule> placement = {{"transformer.wte", devices.front()},
                                                     {"transformer.wpe", devices.front()}};
  for (size_t i = 0; i < of_blocks.size(); ++i) {
    placement.push_back({absl::StrCat("transformer.h.", i), of_blocks[i]});
  }
  placement.push_back({"transformer.ln_f", devices.back()});
  placement.push_back({"lm_head", devices.back()});
  return placement;
}

std::vector<double> Gpt2BlockCosts(const models::Gpt2Config& config) {
  const auto width = static_cast<double>(config.width);
  // Four projections of the attention's width and two of the feed-forward part's, and scores and
  // sums over half the block on average.
  const double block = 12 * width * width + width * static_cast<double>(config.block);
  std::vector<double> costs(static_cast<size_t>(config.layers), block);
  costs.back() += width * static_cast<double>(config.vocabulary);
  return costs;
}

std::vector<models::Gpt2Part> BalancedGpt2Parts(const models::Gpt2& model, int stages) {
  return models::SplitGpt2(model, pipeline::SplitPoints(Gpt2BlockCosts(model.config()), stages));
}

pipeline::Stage StageOf(const models::Gpt2Part& part) {
  return {.parts = part.modules, .forward = [forward = part.forward](TensorSpan inputs) {
            return TensorList{forward(inputs[0])};
          }};
}

pipeline::PipelineOptions Gpt2PipelineOptions(const models::Gpt2Config& config, int stages) {
  pipeline::PipelineOptions options;
  options.loss = [vocabulary = config.vocabulary](TensorSpan outputs, TensorSpan targets) {
    return CrossEntropy(Reshape(outputs[0], {-1, vocabulary}), Reshape(targets[0], {-1}));
  };
  if (stages > 1 && config.tie_head) {
    options.tied = {{{0, "transformer.wte.weight"}, {stages - 1, "lm_head.weight"}}};
  }
  options.weight = [](TensorSpan targets) {
    return Sum(To(NotEqual(targets[0], kNoTarget), DType::kFloat64)).Item<double>();
  };
  return options;
}

}  // namespace lockstep::examples
