// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Modules of nn/. Their parameters are replaced by inputs of the case, which so get gradients.

#include "lockstep/nn/activations.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/layer_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/losses.h"
#include "lockstep/tests/parity/ops/arguments.h"
#include "lockstep/tests/parity/ops/bindings.h"
#include "lockstep/tests/parity/ops/neural_options.h"

namespace lockstep::parity {
namespace {

using nlohmann::json;
using Results = std::vector<Tensor>;

template <typename Activation>
Results Activate(TensorSpan x, const json&) {
  Activation activation;
  return {activation(x[0])};
}

Results RunGelu(TensorSpan x, const json& a) {
  const bool tanh = Get<std::string>(a, "kind", "none") == "tanh";
  nn::Gelu gelu(tanh ? GeluKind::kTanh : GeluKind::kErf);
  return {gelu(x[0])};
}

Results RunLinear(TensorSpan x, const json&) {
  const bool bias = x.size() > 2;
  nn::Linear linear(x[1].size(1), x[1].size(0), {.bias = bias});
  linear.weight = x[1];
  if (bias) linear.bias = x[2];
  return {linear(x[0])};
}

Results RunEmbedding(TensorSpan x, const json&) {
  nn::Embedding embedding(x[0].size(0), x[0].size(1));
  embedding.weight = x[0];
  return {embedding(x[1])};
}

Results RunLayerNorm(TensorSpan x, const json& a) {
  const NormParameters parameters = NormParametersOf(x, a);
  const Shape& shape = x[0].shape();
  nn::LayerNorm norm(Shape(shape.end() - a["normalized_rank"].get<int64_t>(), shape.end()),
                     {.epsilon = a["epsilon"],
                      .affine = parameters.weight.defined(),
                      .bias = parameters.bias.defined()});
  norm.weight = parameters.weight;
  norm.bias = parameters.bias;
  return {norm(x[0])};
}

Results RunDropout(TensorSpan x, const json& a) {
  nn::Dropout dropout(a["p"]);
  dropout.Eval();
  return {dropout(x[0])};
}

Results RunSelfAttention(TensorSpan x, const json& a) {
  const bool bias = x.size() > 3;
  nn::CausalSelfAttention attention({.width = x[0].size(2), .heads = a["heads"], .bias = bias});
  attention.c_attn()->weight = x[1];
  attention.c_proj()->weight = x[bias ? 3 : 2];
  if (bias) {
    attention.c_attn()->bias = x[2];
    attention.c_proj()->bias = x[4];
  }
  return {attention(x[0])};
}

}  // namespace

void AddModuleBindings(BindingTable& table) {
  table["nn.Linear"] = &RunLinear;
  table["nn.Embedding"] = &RunEmbedding;
  table["nn.LayerNorm"] = &RunLayerNorm;
  table["nn.Dropout"] = &RunDropout;
  table["nn.CausalSelfAttention"] = &RunSelfAttention;
  table["nn.Gelu"] = &RunGelu;
  table["nn.Relu"] = &Activate<nn::Relu>;
  table["nn.Tanh"] = &Activate<nn::Tanh>;
  table["nn.Sigmoid"] = &Activate<nn::Sigmoid>;
  table["nn.CrossEntropyLoss"] = [](TensorSpan x, const json& a) {
    nn::CrossEntropyLoss loss(CrossEntropyOptionsOf(a));
    return Results{loss(x[0], TargetOf(x[1], a))};
  };
  table["nn.MseLoss"] = [](TensorSpan x, const json& a) {
    nn::MseLoss loss(ReductionOf(a));
    return Results{loss(x[0], x[1])};
  };
}

}  // namespace lockstep::parity
