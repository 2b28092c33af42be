// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Clipping of gradients.
//
//   autograd::Backward(loss);
//   Tensor norm = optim::ClipGradNorm(model.Parameters(), 1.0);
//   optimizer.Step();
//
// Parameters without a gradient are left out.
#ifndef LOCKSTEP_NN_OPTIM_CLIP_H_
#define LOCKSTEP_NN_OPTIM_CLIP_H_

#include "absl/strings/string_view.h"
#include "lockstep/tensor/ops/update.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::optim {

struct ClipGradNormOptions {
  NormKind kind = NormKind::kTwo;
  // Throw when the norm is infinite or NaN, before anything is scaled. Reads the norm, which waits
  // for the device.
  bool error_if_nonfinite = false;
};

// Scales all gradients by max_norm / (norm + 1e-6) where that is below 1, with the one norm over
// all their elements. Returns that norm, of before: a tensor [] on the first gradient's device,
// float32 (float64 when a gradient is); 0 when there are none. Gradients may lie on several
// devices. Throws InvalidArgument for a negative max_norm, FailedPrecondition for
// error_if_nonfinite.
Tensor ClipGradNorm(TensorSpan parameters, double max_norm,
                    const ClipGradNormOptions& options = {});

// The same in two parts, for a norm that is of more than these parameters: over ranks that have
// some each. `call` is who asks, and begins the messages.
void CheckMaxNorm(absl::string_view call, double max_norm);
void ClipGradsWithNorm(absl::string_view call, TensorSpan parameters, const Tensor& norm,
                       double max_norm, const ClipGradNormOptions& options);

// Clamps every element of the gradients to [-limit, limit]. Throws InvalidArgument for a negative
// limit.
void ClipGradValue(TensorSpan parameters, double limit);

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_CLIP_H_
