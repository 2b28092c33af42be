// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/gpt2_stages.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "lockstep/strategies/model_parallel/place_blocks.h"

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

}  // namespace lockstep::examples
