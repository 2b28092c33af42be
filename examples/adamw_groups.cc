// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/adamw_groups.h"

#include "lockstep/tensor/tensor.h"

namespace lockstep::examples {

std::set<std::string> NamesOfMatrices(const models::Gpt2& model) {
  std::set<std::string> names;
  for (const auto& [name, parameter] : model.StateTensors()) {
    if (parameter.rank() >= 2) names.insert(name);
  }
  return names;
}

optim::AdamWOptions AdamWSettings(double lr) {
  return {.lr = lr, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1};
}

AdamWGroups MakeAdamWGroups(const NamedTensors& matrices, const NamedTensors& others, double lr) {
  optim::AdamWOptions kept = AdamWSettings(lr);
  kept.weight_decay = 0;
  return {{matrices, AdamWSettings(lr)}, {others, kept}};
}

AdamWGroups MakeAdamWGroups(const NamedTensors& parameters, const std::set<std::string>& matrices,
                            double lr) {
  const auto named = [&](bool wanted) {
    return parameters.Filter([&](const std::string& name, const Tensor&) {
      return (matrices.count(name) > 0) == wanted;
    });
  };
  return MakeAdamWGroups(named(true), named(false), lr);
}

}  // namespace lockstep::examples
