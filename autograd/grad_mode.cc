// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/grad_mode.h"

#include <utility>

#include "lockstep/autograd/grad_state.h"
#include "lockstep/base/error.h"

namespace lockstep::autograd {

bool InferenceEnabled() {
  const internal::GradState* state = internal::CurrentGradState();
  return state != nullptr && state->inference;
}

bool GradEnabled() {
  return (CurrentThreadState().layer_mask & LayerBit(DispatchLayer::kGradients)) != 0 &&
         !InferenceEnabled();
}

// Within an InferenceScope the layer stays on, because it marks results.
NoGradScope::NoGradScope() : scope_(DispatchLayer::kGradients, InferenceEnabled()) {}

EnableGradScope::EnableGradScope() : scope_(DispatchLayer::kGradients, true) {
  if (InferenceEnabled()) {
    throw FailedPreconditionError(
        "EnableGradScope: nothing can be recorded inside an InferenceScope; use NoGradScope there");
  }
}

InferenceScope::InferenceScope()
    : scope_(DispatchLayer::kGradients, true),
      saved_(internal::ReplaceGradState([](internal::GradState& s) { s.inference = true; })) {}

InferenceScope::~InferenceScope() {
  MutableThreadState().layer_state[internal::kGradSlot] = std::move(saved_);
}

}  // namespace lockstep::autograd
