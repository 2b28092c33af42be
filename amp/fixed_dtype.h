// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Custom functions that compute in one dtype whatever autocast says.
//
//   // Log of sums of exponentials, which 16 bits cannot hold:
//   Tensor y = amp::ApplyInDType(std::make_shared<LogSumExp>(), {x}, DType::kFloat32)[0];
//
// As torch.amp.custom_fwd(cast_inputs = dtype) with custom_bwd. A custom function that should run
// under autocast, its ops cast one by one, needs nothing: autograd::Apply runs its backward under
// the autocast of its forward.
#ifndef LOCKSTEP_AMP_FIXED_DTYPE_H_
#define LOCKSTEP_AMP_FIXED_DTYPE_H_

#include <memory>
#include <vector>

#include "lockstep/autograd/custom_function.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::amp {

// Where autocast is on for the inputs' device: casts the floating-point inputs (not float64) to
// `dtype`, and runs Forward and, later, Backward with autocast off. The gradients of the inputs
// have the inputs' own dtypes. Elsewhere: autograd::Apply. Throws as that, and InvalidArgument for
// a dtype that is not floating point.
std::vector<Tensor> ApplyInDType(std::shared_ptr<autograd::CustomFunction> function,
                                 TensorSpan inputs, DType dtype);

}  // namespace lockstep::amp

#endif  // LOCKSTEP_AMP_FIXED_DTYPE_H_
