// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/gradients/builtin.h"

namespace lockstep::autograd::internal {

void RegisterBuiltinGradients() {
#define LOCKSTEP_GRADIENT_Yes(name) RegisterGradient(OpId::k##name, gradients::name##Gradient());
#define LOCKSTEP_GRADIENT_No(name)
#define LOCKSTEP_OP(name, inputs, outputs, kind, view_of, mutates, amp_cpu, amp_cuda, gradient, \
                    cost, doc)                                                                  \
  LOCKSTEP_GRADIENT_##gradient(name)
#include "lockstep/tensor/op_list.inc"
#undef LOCKSTEP_OP
#undef LOCKSTEP_GRADIENT_No
#undef LOCKSTEP_GRADIENT_Yes
}

}  // namespace lockstep::autograd::internal
