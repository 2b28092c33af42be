// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The gradients of the rows of op_list.inc: one function for each row that says it is
// differentiable, declared by expansion. A missing one does not link. Internal.
#ifndef LOCKSTEP_AUTOGRAD_GRADIENTS_BUILTIN_H_
#define LOCKSTEP_AUTOGRAD_GRADIENTS_BUILTIN_H_

#include "lockstep/autograd/gradient.h"

namespace lockstep::autograd {
namespace gradients {

// GradientInfo AddGradient(); and so on.
#define LOCKSTEP_GRADIENT_Yes(name) GradientInfo name##Gradient();
#define LOCKSTEP_GRADIENT_No(name)
#define LOCKSTEP_OP(name, inputs, outputs, kind, view_of, mutates, amp_cpu, amp_cuda, gradient, \
                    cost, doc)                                                                  \
  LOCKSTEP_GRADIENT_##gradient(name)
#include "lockstep/tensor/op_list.inc"
#undef LOCKSTEP_OP
#undef LOCKSTEP_GRADIENT_No
#undef LOCKSTEP_GRADIENT_Yes

}  // namespace gradients

namespace internal {
// Registers all of them; called once, by the layer.
void RegisterBuiltinGradients();
}  // namespace internal

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_GRADIENTS_BUILTIN_H_
