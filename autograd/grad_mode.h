// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Scopes that say whether this thread records ops for gradients. Recording is on in every thread of
// a program that links //autograd.
//
//   {
//     NoGradScope no_grad;
//     AddInPlace(w, update);      // changing a leaf that requires a gradient
//   }
#ifndef LOCKSTEP_AUTOGRAD_GRAD_MODE_H_
#define LOCKSTEP_AUTOGRAD_GRAD_MODE_H_

#include <memory>

#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::autograd {

// Whether ops called now by this thread are recorded.
bool GradEnabled();

// Nothing is recorded inside: results do not require gradients, and in-place changes leave history
// alone (versions still count).
class NoGradScope {
 public:
  NoGradScope();

 private:
  LayerScope scope_;
};

// Records inside, also within a NoGradScope. Throws FailedPrecondition within an InferenceScope.
class EnableGradScope {
 public:
  EnableGradScope();

 private:
  LayerScope scope_;
};

// As NoGradScope, and ops' results inside are marked: using one in a recorded op later is an error
// (FailedPrecondition), so that a forgotten gradient cannot go unnoticed. Clone() them outside to
// use them. Views of tensors from outside are not marked.
class InferenceScope {
 public:
  InferenceScope();
  ~InferenceScope();
  InferenceScope(const InferenceScope&) = delete;
  InferenceScope& operator=(const InferenceScope&) = delete;

 private:
  LayerScope scope_;
  std::shared_ptr<const LayerState> saved_;
};

// Whether this thread is in an InferenceScope.
bool InferenceEnabled();

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_GRAD_MODE_H_
