// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/claim_gradient.h"

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/stream.h"

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

void LoseParameter(const Tensor& parameter, const Shape& shape, const TensorOptions& options,
                   const std::string& why) {
  const autograd::NoGradScope no_grad;
  if (NumElements(shape, "LoseParameter") == 0) return parameter.SetData(Empty(shape, options));
  // As if a copy to it had failed: one element that is never ready, shown as all.
  const Tensor lost = Empty({1}, options);
  const Tensor shown = Expand(Reshape(lost, Shape(shape.size(), 1)), shape);
  Event never = Event::MakePending();
  never.Complete(std::make_exception_ptr(FailedPreconditionError(why)));
  lost.storage()->SetPending(never);
  parameter.SetData(shown);
}

bool IsLost(const Tensor& tensor) {
  const RefPtr<Storage>& storage = tensor.impl().storage;
  if (!storage) return false;
  try {
    storage->WaitReady();
  } catch (const Error&) {
    return true;
  }
  return false;
}

void CheckNotLost(absl::string_view strategy, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.impl().storage) continue;
    try {
      tensor.impl().storage->WaitReady();
    } catch (const Error& error) {
      throw error.WithContext(strategy);
    }
  }
}

}  // namespace lockstep::strategies
