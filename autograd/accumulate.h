// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Adding gradients up. Internal to the engine; called with recording on only when the backward
// creates a graph.
#ifndef LOCKSTEP_AUTOGRAD_ACCUMULATE_H_
#define LOCKSTEP_AUTOGRAD_ACCUMULATE_H_

#include "lockstep/autograd/meta.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd::internal {

// a + b, either of which may be undefined; written into one of them when nobody else holds it.
Tensor AddGradients(Tensor a, Tensor b, bool create_graph);

// Adds `gradient` into the slot, one thread at a time: in place where there is a gradient already;
// else by taking over the buffer, when nobody else holds it and it is row-major, or by a copy.
// The storage is counted as MemoryCategory::kGradient.
void AccumulateIntoSlot(GradSlot& slot, Tensor gradient, bool create_graph);

// Runs the hooks in order; each may replace the gradient by one of the same kind. `whose` is for
// messages. Throws InvalidArgument for a replacement that does not fit.
Tensor RunGradHooks(const HookRegistry& hooks, Tensor gradient, const char* whose);

// Hooks of the leaf, accumulation, hooks after it. The gradient may be undefined.
void AccumulateIntoLeaf(const Tensor& leaf, Tensor gradient, bool create_graph);

}  // namespace lockstep::autograd::internal

#endif  // LOCKSTEP_AUTOGRAD_ACCUMULATE_H_
