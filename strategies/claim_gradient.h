// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A parameter is in the care of one strategy: its gradient is averaged over ranks once, and what
// one strategy has cut into parts no other takes for the whole.
#ifndef LOCKSTEP_STRATEGIES_CLAIM_GRADIENT_H_
#define LOCKSTEP_STRATEGIES_CLAIM_GRADIENT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// Calls `hook` after a backward has added to Grad(parameter), a leaf that requires a gradient, as
// long as the handle is not removed. Throws AlreadyExists, beginning with `strategy` and with the
// parameter's `name`, while another strategy has one.
autograd::HookHandle ClaimGradient(absl::string_view strategy, const std::string& name,
                                   const Tensor& parameter, autograd::LeafHook hook);

// Throws that for the first of those parameters that require a gradient.
void CheckUnclaimed(absl::string_view strategy, const NamedTensors& parameters);

// Says, as long as the handle is not removed, that the tensor shows a part of the parameter only,
// which may be frozen. Does nothing for one that cannot have a gradient.
autograd::HookHandle ClaimSharded(absl::string_view strategy, const std::string& name,
                                  const Tensor& parameter);
// Throws AlreadyExists for the first tensor of which that was said.
void CheckUnsharded(absl::string_view strategy, const NamedTensors& tensors);

// Makes each access to the parameter's bytes FailedPrecondition with the message `why`: they are
// lost. It is of this shape, dtype and device then.
void LoseParameter(const Tensor& parameter, const Shape& shape, const TensorOptions& options,
                   const std::string& why);
// Whether that was done. Waits for copies that are under way.
bool IsLost(const Tensor& tensor);
// Throws it, beginning with `strategy`, for the first one that is lost.
void CheckNotLost(absl::string_view strategy, const NamedTensors& tensors);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_CLAIM_GRADIENT_H_
