// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A parameter's gradient is averaged over ranks by one strategy, once.
#ifndef LOCKSTEP_STRATEGIES_CLAIM_GRADIENT_H_
#define LOCKSTEP_STRATEGIES_CLAIM_GRADIENT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// Calls `hook` after a backward has added to Grad(parameter), a leaf that requires a gradient, as
// long as the handle is not removed. Throws AlreadyExists, beginning with `strategy` and with the
// parameter's `name`, while another strategy has one.
autograd::HookHandle ClaimGradient(absl::string_view strategy, const std::string& name,
                                   const Tensor& parameter, autograd::LeafHook hook);

// Throws that for the first of those parameters that require a gradient.
void CheckUnclaimed(absl::string_view strategy, const NamedTensors& parameters);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_CLAIM_GRADIENT_H_
