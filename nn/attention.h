// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// CausalSelfAttention: every position attends to itself and the positions before it.
//
//   nn::CausalSelfAttention attention({.width = 12, .heads = 3});
//   Tensor y = attention(x);                 // [B, T, 12] -> [B, T, 12]
//
// Parameters, named as in GPT-2: "c_attn.weight" [3 * width, width] and "c_attn.bias" (queries,
// keys and values, one after the other), "c_proj.weight" [width, width] and "c_proj.bias". The
// heads are views, and the attention is fused: memory grows linearly in T.
#ifndef LOCKSTEP_NN_ATTENTION_H_
#define LOCKSTEP_NN_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"

namespace lockstep::nn {

struct CausalSelfAttentionOptions {
  int64_t width = 0;
  int64_t heads = 1;             // must divide width
  bool bias = true;              // of both linear layers
  double attention_dropout = 0;  // of the attention weights
  double residual_dropout = 0;   // of the result
};

class CausalSelfAttention : public UnaryModule {
 public:
  // Throws InvalidArgument for sizes below 1, heads that do not divide width, or probabilities
  // outside [0, 1].
  explicit CausalSelfAttention(const CausalSelfAttentionOptions& options);

  // Throws InvalidArgument unless x is [B, T, width].
  Tensor Forward(const Tensor& x) override;
  std::string Description() const override;

  const std::shared_ptr<Linear>& c_attn() const { return c_attn_; }
  const std::shared_ptr<Linear>& c_proj() const { return c_proj_; }

 private:
  CausalSelfAttentionOptions options_;
  std::shared_ptr<Linear> c_attn_;
  std::shared_ptr<Linear> c_proj_;
  std::shared_ptr<Dropout> residual_dropout_;
};

}  // namespace lockstep::nn

#endif  // LOCKSTEP_NN_ATTENTION_H_
