// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/lost_parameter.h"

#include <exception>

#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::strategies {

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
