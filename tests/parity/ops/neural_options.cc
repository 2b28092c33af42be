// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tests/parity/ops/neural_options.h"

#include <string>
#include <vector>

#include "lockstep/tests/parity/ops/arguments.h"

namespace lockstep::parity {

Reduction ReductionOf(const nlohmann::json& args) {
  const std::string name = Get<std::string>(args, "reduction", "mean");
  return name == "none" ? Reduction::kNone : name == "sum" ? Reduction::kSum : Reduction::kMean;
}

CrossEntropyOptions CrossEntropyOptionsOf(const nlohmann::json& args) {
  return {.reduction = ReductionOf(args),
          .ignore_index = Get<int64_t>(args, "ignore_index", -100),
          .label_smoothing = Get(args, "label_smoothing", 0.0)};
}

Tensor TargetOf(const Tensor& target, const nlohmann::json& args) {
  if (!args.contains("ignored")) return target;
  std::vector<int64_t> classes = target.ToVector<int64_t>();
  const size_t step = args["ignored"];
  for (size_t i = 0; i < classes.size(); i += step) {
    classes[i] = CrossEntropyOptionsOf(args).ignore_index;
  }
  return FromVector<int64_t>(classes, target.shape());
}

NormParameters NormParametersOf(TensorSpan inputs, const nlohmann::json& args) {
  NormParameters parameters;
  if (Get(args, "weight", inputs.size() > 1)) parameters.weight = inputs[1];
  if (Get(args, "bias", inputs.size() > 2)) parameters.bias = inputs.back();
  return parameters;
}

}  // namespace lockstep::parity
