// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Parameters whose elements are gone, because the strategy that kept them in parts is: reading one
// is an error that says why, and not a wrong number.
#ifndef LOCKSTEP_STRATEGIES_LOST_PARAMETER_H_
#define LOCKSTEP_STRATEGIES_LOST_PARAMETER_H_

#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// Makes each read of the parameter FailedPrecondition with the message `why`; a write in place is
// refused too, as one into elements that share memory. It is of this shape, dtype and device then.
// SetData() with other elements ends that.
void LoseParameter(const Tensor& parameter, const Shape& shape, const TensorOptions& options,
                   const std::string& why);

// Whether that was done. Waits for copies that are under way.
bool IsLost(const Tensor& tensor);

// Throws it, beginning with `strategy`, for the first one that is lost.
void CheckNotLost(absl::string_view strategy, const NamedTensors& tensors);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_LOST_PARAMETER_H_
