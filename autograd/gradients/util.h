// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the gradient functions share. Internal to gradients/.
#ifndef LOCKSTEP_AUTOGRAD_GRADIENTS_UTIL_H_
#define LOCKSTEP_AUTOGRAD_GRADIENTS_UTIL_H_

#include <initializer_list>

#include "absl/types/span.h"
#include "lockstep/autograd/gradient.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd::gradients {

using Context = GradientContext;
using Results = absl::Span<Tensor>;

// Save rules: always, or what one input's gradient needs.
inline Saves SaveNothing(const OpCall&, const InputMask&) { return {}; }
template <uint32_t inputs, uint32_t outputs = 0>
Saves SaveAlways(const OpCall&, const InputMask&) {
  return {inputs, outputs};
}

// A row of the table with the gradient's own attributes and scalars.
inline Tensor RunRow(OpId op, std::initializer_list<Tensor> inputs, const Context& context) {
  return Dispatch1(op, TensorSpan(inputs.begin(), inputs.size()), context.scalars(),
                   context.attributes());
}

inline Tensor ZerosOf(const TensorMeta& meta) {
  return Zeros(meta.shape, {.dtype = meta.dtype, .device = meta.device});
}
// Zeros without memory of their own: one element, expanded.
inline Tensor ExpandedZeros(const TensorMeta& meta) {
  return Expand(Full({}, 0, {.dtype = meta.dtype, .device = meta.device}), meta.shape);
}

// The gradient of an input that was broadcast.
inline Tensor Unbroadcast(const Tensor& gradient, const TensorMeta& input) {
  return gradient.shape() == input.shape ? gradient : SumTo(gradient, input.shape);
}

}  // namespace lockstep::autograd::gradients

#endif  // LOCKSTEP_AUTOGRAD_GRADIENTS_UTIL_H_
