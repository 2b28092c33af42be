// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/saved_tensor_hooks.h"

#include <utility>

#include "lockstep/autograd/grad_state.h"
#include "lockstep/base/error.h"

namespace lockstep::autograd {

SavedTensorHooksScope::SavedTensorHooksScope(PackHook pack, UnpackHook unpack) {
  if (!pack || !unpack) {
    throw InvalidArgumentError("SavedTensorHooksScope: an empty hook; give both functions");
  }
  auto hooks = std::make_shared<const internal::SavedHooks>(internal::SavedHooks{
      [pack = std::move(pack)](const Tensor& tensor, const internal::SavedBy&) {
        return pack(tensor);
      },
      std::move(unpack)});
  saved_ = internal::ReplaceGradState([&](internal::GradState& s) { s.hooks = std::move(hooks); });
}

SavedTensorHooksScope::~SavedTensorHooksScope() {
  MutableThreadState().layer_state[internal::kGradSlot] = std::move(saved_);
}

}  // namespace lockstep::autograd
