// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/models/gpt2.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/init.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/neural.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::models {
namespace {

const Gpt2Config& Validated(const Gpt2Config& config) {
  config.Validate();
  return config;
}

// Weights normal, biases zero, norms ones and zeros, in the order of the parameters. The
// projections into the residual stream add up over 2 * layers branches.
void Initialise(Gpt2& model) {
  const Gpt2Config& config = model.config();
  const double residual_std =
      config.scale_residual_init
          ? config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers))
          : config.init_std;
  for (const auto& [name, module] : model.NamedModules()) {
    const bool residual = name.ends_with(".c_proj");
    if (auto* linear = dynamic_cast<nn::Linear*>(module)) {
      // A tied head is the token embedding, which has its values.
      if (name == "lm_head" && config.tie_head) continue;
      nn::init::Normal(linear->weight, 0, residual ? residual_std : config.init_std);
      if (linear->bias.defined()) nn::init::Zeros(linear->bias);
    } else if (auto* embedding = dynamic_cast<nn::Embedding*>(module)) {
      nn::init::Normal(embedding->weight, 0, config.init_std);
    }
  }
}

}  // namespace

void Gpt2Config::Validate() const {
  const auto at_least_1 = [](absl::string_view field, int64_t value) {
    if (value >= 1) return;
    throw InvalidArgumentError(
        absl::StrCat("Gpt2Config: ", field, " is ", value, "; it must be at least 1"));
  };
  at_least_1("layers", layers);
  at_least_1("heads", heads);
  at_least_1("width", width);
  at_least_1("block", block);
  at_least_1("vocabulary", vocabulary);
  if (width % heads != 0) {
    throw InvalidArgumentError(
        absl::StrCat("Gpt2Config: width ", width, " is not a multiple of ", heads, " heads"));
  }
  if (!(dropout >= 0 && dropout <= 1)) {
    throw InvalidArgumentError(
        absl::StrCat("Gpt2Config: dropout ", dropout, " is not within [0, 1]"));
  }
  if (!(init_std >= 0) || !(layer_norm_epsilon >= 0)) {
    throw InvalidArgumentError(absl::StrCat("Gpt2Config: init_std ", init_std,
                                            ", layer_norm_epsilon ", layer_norm_epsilon,
                                            "; neither can be negative"));
  }
}

Gpt2Config Gpt2Preset(absl::string_view name) {
  Gpt2Config config;
  const auto set = [&](int64_t layers, int64_t heads, int64_t width, int64_t block,
                       int64_t vocabulary) {
    config.layers = layers;
    config.heads = heads;
    config.width = width;
    config.block = block;
    config.vocabulary = vocabulary;
    return config;
  };
  if (name == "nano") return set(4, 4, 128, 64, 65);
  if (name == "mini") return set(6, 6, 384, 256, 65);
  if (name == "small") return set(12, 12, 768, 256, 50304);
  throw NotFoundError(
      absl::StrCat("Gpt2Preset: no \"", name, "\"; there are nano, mini and small"));
}

Gpt2Mlp::Gpt2Mlp(const Gpt2Config& config)
    : c_fc_(RegisterModule("c_fc", std::make_shared<nn::Linear>(config.width, 4 * config.width))),
      c_proj_(
          RegisterModule("c_proj", std::make_shared<nn::Linear>(4 * config.width, config.width))),
      dropout_(RegisterModule("dropout", std::make_shared<nn::Dropout>(config.dropout))) {}

Tensor Gpt2Mlp::Forward(const Tensor& x) {
  return (*dropout_)((*c_proj_)(Gelu((*c_fc_)(x), GeluKind::kTanh)));
}

Gpt2Block::Gpt2Block(const Gpt2Config& config)
    : ln_1_(RegisterModule(
          "ln_1", std::make_shared<nn::LayerNorm>(
                      ShapeArg({config.width}), nn::LayerNormOptions{config.layer_norm_epsilon}))),
      attn_(RegisterModule(
          "attn", std::make_shared<nn::CausalSelfAttention>(
                      nn::CausalSelfAttentionOptions{.width = config.width,
                                                     .heads = config.heads,
                                                     .attention_dropout = config.dropout,
                                                     .residual_dropout = config.dropout}))),
      ln_2_(RegisterModule(
          "ln_2", std::make_shared<nn::LayerNorm>(
                      ShapeArg({config.width}), nn::LayerNormOptions{config.layer_norm_epsilon}))),
      mlp_(RegisterModule("mlp", std::make_shared<Gpt2Mlp>(config))) {}

Tensor Gpt2Block::Forward(const Tensor& x) {
  const Tensor y = x + (*attn_)((*ln_1_)(x));
  return y + (*mlp_)((*ln_2_)(y));
}

Gpt2Transformer::Gpt2Transformer(const Gpt2Config& config)
    : wte_(RegisterModule("wte", std::make_shared<nn::Embedding>(config.vocabulary, config.width))),
      wpe_(RegisterModule("wpe", std::make_shared<nn::Embedding>(config.block, config.width))),
      drop_(RegisterModule("drop", std::make_shared<nn::Dropout>(config.dropout))),
      h_(RegisterModule("h", std::make_shared<nn::ModuleList<Gpt2Block>>())),
      ln_f_(RegisterModule(
          "ln_f", std::make_shared<nn::LayerNorm>(
                      ShapeArg({config.width}), nn::LayerNormOptions{config.layer_norm_epsilon}))) {
  for (int64_t i = 0; i < config.layers; ++i) h_->Emplace(config);
}

Tensor EmbedTokens(nn::Embedding& wte, nn::Embedding& wpe, nn::Dropout& drop, const Tensor& ids) {
  const int64_t block = wpe.weight.size(0);
  if (ids.rank() != 2 || ids.size(1) > block) {
    throw InvalidArgumentError(absl::StrCat("Gpt2: ids have shape ",
                                            lockstep::ToString(ids.shape()),
                                            "; expected [B, T] with T of at most ", block));
  }
  // The first T rows of the table: the same as looking up 0 .. T - 1.
  const Tensor positions =
      wpe(Arange(ids.size(1), TensorOptions{.dtype = DType::kInt64, .device = ids.device()}));
  return drop(wte(ids) + positions);
}

Tensor Gpt2Transformer::Forward(const Tensor& ids) {
  Tensor x = EmbedTokens(*wte_, *wpe_, *drop_, ids);
  for (const auto& block : *h_) x = (*block)(x);
  return (*ln_f_)(x);
}

Gpt2::Gpt2(const Gpt2Config& config)
    : config_(Validated(config)),
      transformer_(RegisterModule("transformer", std::make_shared<Gpt2Transformer>(config))),
      lm_head_(RegisterModule(
          "lm_head", std::make_shared<nn::Linear>(
                         config.width, config.vocabulary,
                         nn::LinearOptions{.bias = false,
                                           .weight = config.tie_head ? transformer_->wte()->weight
                                                                     : Tensor()}))) {
  Initialise(*this);
}

Tensor Gpt2::Forward(const Tensor& ids) { return (*lm_head_)((*transformer_)(ids)); }

Tensor Gpt2::Loss(const Tensor& ids, const Tensor& targets) {
  if (ids.shape() != targets.shape()) {
    throw InvalidArgumentError(absl::StrCat("Gpt2::Loss: ids have shape ",
                                            lockstep::ToString(ids.shape()), " and targets ",
                                            lockstep::ToString(targets.shape())));
  }
  const Tensor logits = (*this)(ids);
  // The head may be on another device than the embedding.
  return CrossEntropy(Reshape(logits, {-1, config_.vocabulary}),
                      Reshape(lockstep::To(targets, logits.device()), {-1}));
}

}  // namespace lockstep::models
