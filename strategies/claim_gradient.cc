// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/claim_gradient.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"

namespace lockstep::strategies {

autograd::HookHandle ClaimGradient(absl::string_view strategy, const std::string& name,
                                   const Tensor& parameter, autograd::LeafHook hook) {
  try {
    return autograd::RegisterPostAccumulateGradHook(parameter, std::move(hook),
                                                    /*role=*/"averaging over ranks");
  } catch (const Error& error) {
    if (error.code() != absl::StatusCode::kAlreadyExists) throw;
    throw AlreadyExistsError(
        absl::StrCat(strategy, ": the gradient of ", name,
                     " is averaged by another strategy already; wrap a module, and what is in it, "
                     "once, or end the other strategy first"));
  }
}

void CheckUnclaimed(absl::string_view strategy, const NamedTensors& parameters) {
  for (const auto& [name, parameter] : parameters) {
    if (!autograd::RequiresGrad(parameter)) continue;
    ClaimGradient(strategy, name, parameter, [](const Tensor&) {}).Remove();
  }
}

}  // namespace lockstep::strategies
