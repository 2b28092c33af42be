// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ops of neural networks: softmax, layer norm, dropout, losses, attention. float16 and bfloat16 are
// computed in float32 inside.
#ifndef LOCKSTEP_TENSOR_OPS_NEURAL_H_
#define LOCKSTEP_TENSOR_OPS_NEURAL_H_

#include <optional>

#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// A row of -inf gives NaN, as in PyTorch.
Tensor Softmax(const Tensor& x, int64_t dim);
Tensor LogSoftmax(const Tensor& x, int64_t dim);

// Over the last `normalized_rank` dimensions; weight and bias (either undefined) have their shape.
// Saves mean and 1/sqrt(variance + epsilon) a row. Source: Ba et al. 2016.
Tensor LayerNorm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                 double epsilon = 1e-5, int64_t normalized_rank = 1);

struct DropoutOptions {
  bool training = true;            // false: returns x itself
  Generator* generator = nullptr;  // null: this thread's dropout stream
};
// Zero with probability p, else x / (1 - p). Throws InvalidArgument unless 0 <= p <= 1.
Tensor Dropout(const Tensor& x, double p, const DropoutOptions& options = {});

struct CrossEntropyOptions {
  Reduction reduction = Reduction::kMean;  // the mean is over targets that are not ignored
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};
// logits [N, C] or [C], target int64 [N] or []. Fused: saves one log-sum-exp a row. When all
// targets are ignored the mean is NaN, as in PyTorch. Throws OutOfRange for a target outside [0,
// C).
Tensor CrossEntropy(const Tensor& logits, const Tensor& target,
                    const CrossEntropyOptions& options = {});

// (x - target)^2, same shapes; floating point.
Tensor MseLoss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::kMean);

struct AttentionOptions {
  Tensor mask = {};     // bool (true: attend) or q's dtype (added); broadcasts to [B, H, T, S]
  bool causal = false;  // row t attends to columns <= t; not together with a mask
  double dropout_p = 0;
  std::optional<double> scale = std::nullopt;  // default 1 / sqrt(D)
  Generator* generator = nullptr;              // for dropout; null: this thread's dropout stream
};
// q [B, H, T, D], k [B, H, S, D], v [B, H, S, E] -> [B, H, T, E]; any number of leading dimensions.
// Fused (Dao et al. 2022): memory linear in T and S; forward saves y and one log-sum-exp a row. y
// has q's order of strides, so that permuted [B, T, H, D] operands give back that order without a
// copy. Rows that may attend to nothing give 0, with zero gradient.
Tensor ScaledDotProductAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const AttentionOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OPS_NEURAL_H_
