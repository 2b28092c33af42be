// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The fused backward rows in plain ops: what their own gradients are derived from, and what tests
// compare the fused kernels with. Internal.
//
// All take the row's inputs in the row's order and return its outputs. They treat saved statistics
// (mean, log-sum-exp) as independent inputs, as the rows do; what these contribute to the gradient
// of a gradient arrives through the outputs of the forward op.
#ifndef LOCKSTEP_AUTOGRAD_GRADIENTS_DECOMPOSITIONS_H_
#define LOCKSTEP_AUTOGRAD_GRADIENTS_DECOMPOSITIONS_H_

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "lockstep/autograd/gradient.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd::gradients {

// Gradients of `decomposition(inputs)`, whose outputs correspond to those of the context's node (an
// undefined one has no gradient), for the wanted inputs. Inputs are treated as independent of each
// other, whatever their histories. The results are themselves recorded when the backward creates a
// graph.
void DifferentiateDecomposition(const GradientContext& context, TensorSpan inputs,
                                absl::Span<Tensor> results,
                                absl::FunctionRef<TensorList(TensorSpan inputs)> decomposition);

// grad * Gelu'(x)
Tensor DecomposedGeluBackward(const Tensor& grad, const Tensor& x, GeluKind kind);

// y * (grad - sum(grad * y))
Tensor DecomposedSoftmaxBackward(const Tensor& grad, const Tensor& y, int64_t dim);
// grad - exp(y) * sum(grad)
Tensor DecomposedLogSoftmaxBackward(const Tensor& grad, const Tensor& y, int64_t dim);

// dx, dweight, dbias. `weight` may be undefined.
TensorList DecomposedLayerNormBackward(const Tensor& grad, const Tensor& x, const Tensor& mean,
                                       const Tensor& rstd, const Tensor& weight,
                                       int64_t normalized_rank);

// dlogits
Tensor DecomposedCrossEntropyBackward(const Tensor& grad, const Tensor& logits,
                                      const Tensor& target, const Tensor& log_sum_exp,
                                      const CrossEntropyAttributes& attributes,
                                      double label_smoothing);

// exp(scaled and masked scores - log_sum_exp) [..., T, S]; 0 where a row may attend to nothing.
Tensor AttentionProbabilities(const Tensor& q, const Tensor& k, const Tensor& mask,
                              const Tensor& log_sum_exp, bool causal, double scale);

// dq, dk, dv, and the gradient of the scores before the scale [..., T, S] (that of a float mask).
// `scalars` are the row's: scale, p, seed, stream, offset.
TensorList DecomposedAttentionBackward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                       const Tensor& v, const Tensor& mask, const Tensor& y,
                                       const Tensor& log_sum_exp,
                                       const AttentionAttributes& attributes,
                                       absl::Span<const Scalar> scalars);

}  // namespace lockstep::autograd::gradients

#endif  // LOCKSTEP_AUTOGRAD_GRADIENTS_DECOMPOSITIONS_H_
