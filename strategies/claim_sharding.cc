// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/claim_sharding.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::strategies {
namespace {

// Hooks are for leaves that require a gradient: scope in which a frozen one does.
class Thawed {
 public:
  explicit Thawed(const Tensor& parameter)
      : parameter_(parameter), frozen_(!autograd::RequiresGrad(parameter)) {
    if (frozen_) autograd::SetRequiresGrad(parameter_, true);
  }
  ~Thawed() {
    if (frozen_) autograd::SetRequiresGrad(parameter_, false);
  }
  Thawed(const Thawed&) = delete;
  Thawed& operator=(const Thawed&) = delete;

 private:
  const Tensor& parameter_;
  const bool frozen_;
};

}  // namespace

autograd::HookHandle ClaimSharded(absl::string_view strategy, const std::string& name,
                                  const Tensor& parameter) {
  if (!IsFloatingPoint(parameter.dtype()) || !autograd::IsLeaf(parameter)) return {};
  try {
    const Thawed thawed(parameter);
    return autograd::RegisterPostAccumulateGradHook(
        parameter, [](const Tensor&) {}, /*role=*/"sharding over ranks");
  } catch (const Error& error) {
    if (error.code() == absl::StatusCode::kFailedPrecondition) return {};  // never has a gradient
    if (error.code() != absl::StatusCode::kAlreadyExists) throw;
    throw AlreadyExistsError(absl::StrCat(
        strategy, ": ", name,
        " is sharded by a FullyShardedDataParallel already; wrap a module, and what is in it, "
        "once, or call the other one's Unwrap() first"));
  }
}

void CheckUnsharded(absl::string_view strategy, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) ClaimSharded(strategy, name, tensor).Remove();
}

}  // namespace lockstep::strategies
