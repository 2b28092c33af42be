// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GPT-2: a decoder-only transformer with learnt positions, norms before each part, GELU by tanh,
// and the head tied to the token embedding. Source: Radford et al. 2019.
//
//   models::Gpt2 model(models::Gpt2Preset("nano"));
//   Tensor loss = model.Loss(ids, targets);              // int64 [B, T] both -> []
//   std::vector<int64_t> text = model.Generate(prompt, 100, {.temperature = 0.8, .top_k = 40});
//
// Parameters have the names of Hugging Face's GPT2LMHeadModel
// ("transformer.h.0.attn.c_attn.weight"); huggingface.h converts the weights both ways.
#ifndef LOCKSTEP_MODELS_GPT2_H_
#define LOCKSTEP_MODELS_GPT2_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/layer_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/random.h"

namespace lockstep::models {

struct Gpt2Config {
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t block = 64;        // longest sequence
  int64_t vocabulary = 256;  // 256: bytes
  double dropout = 0;        // of embeddings, attention weights and both residual branches
  bool tie_head = true;      // the head is the token embedding
  double init_std = 0.02;    // of all weights; biases are 0
  // Divides init_std by sqrt(2 * layers) for the two projections into the residual stream.
  bool scale_residual_init = true;
  double layer_norm_epsilon = 1e-5;

  // Throws InvalidArgument that names the first field out of range.
  void Validate() const;
};

// "nano" (4 layers, 4 heads, width 128, block 64, vocabulary 65), "mini" (6, 6, 384, 256, 65),
// "small" (12, 12, 768, 256, 50304). Throws NotFound that lists the names.
Gpt2Config Gpt2Preset(absl::string_view name);

// The feed-forward part: "c_fc" [4 * width, width], GELU, "c_proj" [width, 4 * width].
class Gpt2Mlp : public nn::UnaryModule {
 public:
  explicit Gpt2Mlp(const Gpt2Config& config);
  Tensor Forward(const Tensor& x) override;
  std::string Description() const override { return "Gpt2Mlp"; }
  const std::shared_ptr<nn::Linear>& c_proj() const { return c_proj_; }

 private:
  std::shared_ptr<nn::Linear> c_fc_, c_proj_;
  std::shared_ptr<nn::Dropout> dropout_;
};

// x + attn(ln_1(x)), then x + mlp(ln_2(x)).
class Gpt2Block : public nn::UnaryModule {
 public:
  explicit Gpt2Block(const Gpt2Config& config);
  Tensor Forward(const Tensor& x) override;
  std::string Description() const override { return "Gpt2Block"; }
  const std::shared_ptr<nn::CausalSelfAttention>& attn() const { return attn_; }
  const std::shared_ptr<Gpt2Mlp>& mlp() const { return mlp_; }

 private:
  std::shared_ptr<nn::LayerNorm> ln_1_;
  std::shared_ptr<nn::CausalSelfAttention> attn_;
  std::shared_ptr<nn::LayerNorm> ln_2_;
  std::shared_ptr<Gpt2Mlp> mlp_;
};

// Tokens and positions together, dropped out: int64 ids [B, T], T at most the positions of `wpe` ->
// [B, T, width]. Throws InvalidArgument for ids of another shape.
Tensor EmbedTokens(nn::Embedding& wte, nn::Embedding& wpe, nn::Dropout& drop, const Tensor& ids);

// Everything below the head: int64 ids [B, T] -> [B, T, width].
class Gpt2Transformer : public nn::UnaryModule {
 public:
  explicit Gpt2Transformer(const Gpt2Config& config);
  Tensor Forward(const Tensor& ids) override;
  std::string Description() const override { return "Gpt2Transformer"; }

  const std::shared_ptr<nn::Embedding>& wte() const { return wte_; }
  const std::shared_ptr<nn::Embedding>& wpe() const { return wpe_; }
  const std::shared_ptr<nn::Dropout>& drop() const { return drop_; }
  const nn::ModuleList<Gpt2Block>& h() const { return *h_; }
  const std::shared_ptr<nn::LayerNorm>& ln_f() const { return ln_f_; }

 private:
  std::shared_ptr<nn::Embedding> wte_, wpe_;
  std::shared_ptr<nn::Dropout> drop_;
  std::shared_ptr<nn::ModuleList<Gpt2Block>> h_;
  std::shared_ptr<nn::LayerNorm> ln_f_;
};

struct GenerateOptions {
  double temperature = 1;          // 0: always the likeliest token
  int64_t top_k = 0;               // choose among the k likeliest; 0: among all
  Generator* generator = nullptr;  // null: this thread's data stream
};

class Gpt2 : public nn::UnaryModule {
 public:
  // Throws InvalidArgument (Gpt2Config::Validate).
  explicit Gpt2(const Gpt2Config& config);

  // int64 or int32 ids [B, T], T <= block -> logits [B, T, vocabulary]. Throws InvalidArgument for
  // another shape, OutOfRange for an id outside the vocabulary.
  Tensor Forward(const Tensor& ids) override;
  // Mean cross entropy, in nats a token, of predicting `targets` (int64 [B, T]; -100 is left out),
  // which are moved to the logits' device.
  Tensor Loss(const Tensor& ids, const Tensor& targets);

  // `count` tokens that continue `prompt`, without the prompt. Conditions on the last `block`
  // tokens at most; runs in evaluation mode without gradients and restores the mode. Throws
  // InvalidArgument for an empty prompt, a negative count, temperature or top_k, and OutOfRange for
  // a token outside the vocabulary.
  std::vector<int64_t> Generate(absl::Span<const int64_t> prompt, int64_t count,
                                const GenerateOptions& options = {});

  const Gpt2Config& config() const { return config_; }
  const std::shared_ptr<Gpt2Transformer>& transformer() const { return transformer_; }
  const std::shared_ptr<nn::Linear>& lm_head() const { return lm_head_; }
  std::string Description() const override { return "Gpt2"; }

 private:
  Gpt2Config config_;
  std::shared_ptr<Gpt2Transformer> transformer_;
  std::shared_ptr<nn::Linear> lm_head_;
};

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_GPT2_H_
