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

struct AdamStepOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  int64_t step = 1;              // counts from 1: bias corrections are 1 - beta^step
  bool decoupled_decay = false;  // AdamW
  bool amsgrad = false;  // the largest average of squares so far divides, not the present one
  bool maximize = false;
};
// Adam (Kingma and Ba 2015), AdamW (Loshchilov and Hutter 2019) and AMSGrad (Reddi, Kale and Kumar
// 2018), in PyTorch's order of operations:
//   p *= 1 - lr * weight_decay (decoupled), or g += weight_decay * p;
//   m += (g - m) * (1 - beta1); v = v * beta2 + g^2 * (1 - beta2); x = amsgrad ? max(x, v) : v;
//   p -= lr / (1 - beta1^t) * m / (sqrt(x) / sqrt(1 - beta2^t) + epsilon).
// `max_exp_avg_sqs` is empty without amsgrad.
void AdamStep(TensorSpan parameters, TensorSpan gradients, TensorSpan exp_avgs,
              TensorSpan exp_avg_sqs, TensorSpan max_exp_avg_sqs, const AdamStepOptions& options);

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

struct RmspropStepOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;
};
// Tieleman and Hinton 2012, centered as in Graves 2013, in PyTorch's order of operations:
//   g += weight_decay * p; s = s * alpha + g^2 * (1 - alpha);
//   with centered: a += (g - a) * (1 - alpha) and s - a^2 stands for s below;
//   without momentum p -= lr * g / (sqrt(s) + epsilon), else
//   b = b * momentum + g / (sqrt(s) + epsilon); p -= lr * b.
// `momenta` is empty when momentum is 0, `grad_avgs` without centered.
void RmspropStep(TensorSpan parameters, TensorSpan gradients, TensorSpan square_avgs,
                 TensorSpan momenta, TensorSpan grad_avgs, const RmspropStepOptions& options);

struct AdagradStepOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double epsilon = 1e-10;
  double weight_decay = 0;
  int64_t step = 1;  // counts from 1
  bool maximize = false;
};
// Duchi, Hazan and Singer 2011, in PyTorch's order of operations: g += weight_decay * p; s += g^2;
// p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + epsilon).
void AdagradStep(TensorSpan parameters, TensorSpan gradients, TensorSpan sums,
                 const AdagradStepOptions& options);

// destination += weight * (source - destination), weight within [0, 1], from the nearer end as
// torch.lerp: averages of weights. Destinations of 16-bit sources may be float32.
void LerpInto(TensorSpan destinations, TensorSpan sources, double weight);

enum class NormKind : uint8_t { kTwo, kInfinity };
// One norm over all elements of all tensors; float32 (float64 when a tensor is float64), [].
// Accumulates in float64. An empty list gives 0.
Tensor GlobalNorm(TensorSpan tensors, NormKind kind = NormKind::kTwo);
// Multiplies every tensor by `inverse_scale` (fp32 arithmetic for 16-bit tensors) and writes 1 into
// `found_inf` (float32 []) when any element was infinite or NaN before; else leaves it. For loss
// scaling, as torch._amp_foreach_non_finite_check_and_unscale_.
void UnscaleAndCheck(TensorSpan gradients, const Tensor& found_inf, double inverse_scale);
// Scales every tensor by max_norm / (norm + 1e-6) where that is below 1, as torch's
// clip_grad_norm_.
void ClipByNorm(TensorSpan gradients, const Tensor& norm, double max_norm);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OPS_UPDATE_H_
