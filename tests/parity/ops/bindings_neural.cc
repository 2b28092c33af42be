// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Functions of tensor/ops/neural.h.

#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/neural.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tests/parity/ops/arguments.h"
#include "lockstep/tests/parity/ops/bindings.h"
#include "lockstep/tests/parity/ops/neural_options.h"

namespace lockstep::parity {
namespace {

using nlohmann::json;
using Results = std::vector<Tensor>;

Binding Along(Tensor (*function)(const Tensor&, int64_t)) {
  return [function](TensorSpan x, const json& a) { return Results{function(x[0], a["dim"])}; };
}

Results Attention(TensorSpan x, const json& a) {
  AttentionOptions options;
  if (x.size() > 3) options.mask = x[3];
  options.causal = Get(a, "causal", false);
  if (a.contains("scale")) options.scale = a["scale"].get<double>();
  Generator generator;
  if (a.contains("p")) {
    generator = GeneratorOf(a);
    options.dropout_p = a["p"];
    options.generator = &generator;
  }
  return {ScaledDotProductAttention(x[0], x[1], x[2], options)};
}

}  // namespace

void AddNeuralBindings(BindingTable& table) {
  table["Softmax"] = Along(&Softmax);
  table["LogSoftmax"] = Along(&LogSoftmax);
  table["LayerNorm"] = [](TensorSpan x, const json& a) {
    const NormParameters parameters = NormParametersOf(x, a);
    return Results{LayerNorm(x[0], parameters.weight, parameters.bias, Get(a, "epsilon", 1e-5),
                             Get<int64_t>(a, "normalized_rank", 1))};
  };
  table["CrossEntropy"] = [](TensorSpan x, const json& a) {
    return Results{CrossEntropy(x[0], TargetOf(x[1], a), CrossEntropyOptionsOf(a))};
  };
  table["MseLoss"] = [](TensorSpan x, const json& a) {
    return Results{MseLoss(x[0], x[1], ReductionOf(a))};
  };
  table["Dropout"] = [](TensorSpan x, const json& a) {
    Generator generator = GeneratorOf(a);
    return Results{Dropout(x[0], a["p"], {.generator = &generator})};
  };
  table["Attention"] = &Attention;
}

}  // namespace lockstep::parity
