// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The gradient of an op, stated per input. The gradients of the built-in rows are in
// autograd/gradients, one function a row, found by name; programs that add rows with RegisterOp
// add theirs here:
//
//   RegisterGradient(my_op, {
//       .saves = [](const OpCall& call, const InputMask& wanted) {
//         return Saves{.inputs = wanted[0] ? 0b01u : 0u};       // x, if its own gradient is wanted
//       },
//       .gradient = [](const GradientContext& context, absl::Span<Tensor> gradients) {
//         if (context.Wanted(0)) gradients[0] = Mul(context.Gradient(), Cos(context.Input(0)));
//       }});
#ifndef LOCKSTEP_AUTOGRAD_GRADIENT_H_
#define LOCKSTEP_AUTOGRAD_GRADIENT_H_

#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/autograd/input_mask.h"
#include "lockstep/autograd/tensor_meta.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd {

// One call of a gradient function. Inputs are numbered flat (a list counts each of its tensors).
class GradientContext {
 public:
  virtual ~GradientContext() = default;

  virtual const Scalars& scalars() const = 0;
  virtual const Attributes& attributes() const = 0;
  template <typename T>
  const T& attributes_as() const {
    return attributes().template As<T>();
  }

  virtual int input_count() const = 0;
  virtual int output_count() const = 0;
  // Whether this call shall compute the gradient of `input`. One node may be called twice with
  // disjoint sets of wanted inputs.
  virtual bool Wanted(int input) const = 0;
  virtual const TensorMeta& InputMeta(int input) const = 0;
  virtual const TensorMeta& OutputMeta(int output) const = 0;

  // A tensor that `saves` named; undefined for an absent optional input. Throws FailedPrecondition
  // when it was modified in place since.
  virtual Tensor Input(int input) const = 0;
  virtual Tensor Output(int output = 0) const = 0;

  // The incoming gradient, undefined when nothing depends on that output (never so for the only
  // output of an op). GradientOrZeros makes zeros of it then.
  virtual const Tensor& Gradient(int output = 0) const = 0;
  Tensor GradientOrZeros(int output = 0) const;

  // Whether the calls made here are themselves recorded.
  virtual bool CreatesGraph() const = 0;
};

// Bit sets of inputs and outputs to save.
struct Saves {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
};

struct GradientInfo {
  // What to save, given the inputs whose gradients can ever be wanted. Null: nothing.
  Saves (*saves)(const OpCall& call, const InputMask& wanted) = nullptr;
  // Sets `input_gradients[i]` for each wanted input, with its shape; undefined means zero. Must not
  // modify the incoming gradients; may return them. Called under the thread state of the forward
  // op.
  void (*gradient)(const GradientContext& context, absl::Span<Tensor> input_gradients) = nullptr;
  // Outputs that never require a gradient.
  uint32_t non_differentiable_outputs = 0;
};

// Thread-safe. Throws AlreadyExists when the op has a gradient, InvalidArgument without a function
// or for a row that says it is not differentiable.
void RegisterGradient(OpId op, const GradientInfo& info);

// Null when there is none.
const GradientInfo* FindGradient(OpId op);

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_GRADIENT_H_
