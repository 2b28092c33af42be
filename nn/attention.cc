// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/attention.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/neural.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::nn {
namespace {

CausalSelfAttentionOptions Validated(const CausalSelfAttentionOptions& options) {
  if (options.width < 1 || options.heads < 1 || options.width % options.heads != 0) {
    throw InvalidArgumentError(absl::StrCat("nn::CausalSelfAttention: width ", options.width,
                                            " is not a multiple of ", options.heads, " heads"));
  }
  if (!(options.attention_dropout >= 0 && options.attention_dropout <= 1)) {
    throw InvalidArgumentError(absl::StrCat("nn::CausalSelfAttention: attention_dropout ",
                                            options.attention_dropout, " is not within [0, 1]"));
  }
  return options;
}

}  // namespace

CausalSelfAttention::CausalSelfAttention(const CausalSelfAttentionOptions& options)
    : options_(Validated(options)),
      c_attn_(
          RegisterModule("c_attn", std::make_shared<Linear>(options.width, 3 * options.width,
                                                            LinearOptions{.bias = options.bias}))),
      c_proj_(
          RegisterModule("c_proj", std::make_shared<Linear>(options.width, options.width,
                                                            LinearOptions{.bias = options.bias}))),
      residual_dropout_(
          RegisterModule("resid_dropout", std::make_shared<Dropout>(options.residual_dropout))) {}

Tensor CausalSelfAttention::Forward(const Tensor& x) {
  const int64_t width = options_.width;
  if (x.rank() != 3 || x.size(2) != width) {
    throw InvalidArgumentError(absl::StrCat("nn::CausalSelfAttention: the input has shape ",
                                            lockstep::ToString(x.shape()), " instead of [B, T, ",
                                            width, "]"));
  }
  const int64_t batch = x.size(0), length = x.size(1), heads = options_.heads;
  // [B, T, width] -> [B, heads, T, width / heads], without a copy.
  const auto split_heads = [&](const Tensor& part) {
    return Transpose(View(part, {batch, length, heads, width / heads}), 1, 2);
  };
  const std::vector<Tensor> parts = Split((*c_attn_)(x), width, 2);
  const Tensor y = ScaledDotProductAttention(
      split_heads(parts[0]), split_heads(parts[1]), split_heads(parts[2]),
      {.causal = true, .dropout_p = training() ? options_.attention_dropout : 0});
  const Tensor joined = Reshape(Transpose(y, 1, 2), {batch, length, width});
  return (*residual_dropout_)((*c_proj_)(joined));
}

std::string CausalSelfAttention::Description() const {
  return absl::StrCat("CausalSelfAttention(", options_.width, ", heads=", options_.heads, ")");
}

}  // namespace lockstep::nn
