// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What one strategy has cut into parts no other takes for the whole.
#ifndef LOCKSTEP_STRATEGIES_CLAIM_SHARDING_H_
#define LOCKSTEP_STRATEGIES_CLAIM_SHARDING_H_

#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// Says, as long as the handle is not removed, that the tensor shows a part of the parameter only,
// which may be frozen. Does nothing for one that cannot have a gradient. Throws AlreadyExists,
// beginning with `strategy` and with the parameter's `name`, where that was said already.
autograd::HookHandle ClaimSharded(absl::string_view strategy, const std::string& name,
                                  const Tensor& parameter);

// Throws that for the first tensor of which it was said.
void CheckUnsharded(absl::string_view strategy, const NamedTensors& tensors);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_CLAIM_SHARDING_H_
