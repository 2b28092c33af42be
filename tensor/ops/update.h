// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Updates of parameters, over lists of tensors. Everything that changes a parameter is one of these
// ops. Lists have equal lengths and matching shapes and dtypes; all throw InvalidArgument naming
// the first pair that does not fit, before anything is written. State of float16 and bfloat16
// parameters may be float32.
#ifndef LOCKSTEP_TENSOR_OPS_UPDATE_H_
#define LOCKSTEP_TENSOR_OPS_UPDATE_H_

#include "lockstep/tensor/tensor.h"

namespace lockstep {

struct AdamWStepOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  int64_t step = 1;  // counts from 1: bias corrections are 1 - beta^step
  bool maximize = false;
};
// Loshchilov and Hutter 2019, in PyTorch's order of operations: p *= 1 - lr * weight_decay;
// m += (g - m) * (1 - beta1); v = v * beta2 + g^2 * (1 - beta2);
// p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon).
void AdamWStep(TensorSpan parameters, TensorSpan gradients, TensorSpan exp_avgs,
               TensorSpan exp_avg_sqs, const AdamWStepOptions& options);

struct SgdStepOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
  bool first_step = false;  // the momentum buffers become the gradients
};
// `momenta` is empty when momentum is 0.
void SgdStep(TensorSpan parameters, TensorSpan gradients, TensorSpan momenta,
             const SgdStepOptions& options);

enum class NormKind : uint8_t { kTwo, kInfinity };
// One norm over all elements of all tensors; float32 (float64 when a tensor is float64), [].
// Accumulates in float64. An empty list gives 0.
Tensor GlobalNorm(TensorSpan tensors, NormKind kind = NormKind::kTwo);
// Scales every tensor by max_norm / (norm + 1e-6) where that is below 1, as torch's
// clip_grad_norm_.
void ClipByNorm(TensorSpan gradients, const Tensor& norm, double max_norm);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OPS_UPDATE_H_
