// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Dispatch: an op call passes down a fixed order of slots,
//
//   user -> checkpoint -> autocast -> gradients -> trace | backend kernel
//
// each one bit of this thread's layer mask. `tensor/` owns the mechanism and knows none of the
// layers.
#ifndef LOCKSTEP_TENSOR_DISPATCH_H_
#define LOCKSTEP_TENSOR_DISPATCH_H_

#include "lockstep/tensor/op.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {

// Runs one op and returns its outputs. Validation is complete before the first byte is written.
// Throws InvalidArgument (operands), Unimplemented (no kernel for the device: names the target to
// link), ResourceExhausted, and whatever a layer throws.
TensorList Dispatch(const OpCall& call);

// A layer does its part and calls DispatchBelow with its own slot. Nested ops that it issues with
// Dispatch enter at the top again.
using LayerFunction = TensorList (*)(const OpCall& call);
TensorList DispatchBelow(DispatchLayer layer, const OpCall& call);

// Fills a slot; `on_by_default` sets its bit in every thread (that is how linking autograd turns
// gradients on). Throws AlreadyExists.
void RegisterLayer(DispatchLayer layer, LayerFunction function, bool on_by_default);

// Scope: sets or clears one bit of the mask.
class LayerScope {
 public:
  LayerScope(DispatchLayer layer, bool on);
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

 private:
  uint32_t saved_;
};

// Shorthands for the public op functions.
Tensor Dispatch1(OpId op, TensorSpan inputs, const Scalars& scalars = {},
                 const Attributes& attributes = EmptyAttributes());
// In-place form: returns inputs[0].
Tensor DispatchInPlace(OpId op, TensorSpan inputs, const Scalars& scalars = {},
                       const Attributes& attributes = EmptyAttributes());

// The specs of a call's outputs, with devices, without running it.
SpecList InferOutputs(const OpCall& call);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_DISPATCH_H_
