// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A differentiable operation made of any code, with its own backward.
//
//   class Scale : public CustomFunction {
//    public:
//     explicit Scale(double factor) : factor_(factor) {}
//     std::string Name() const override { return "Scale"; }
//     std::vector<Tensor> Forward(FunctionContext& context, TensorSpan inputs) override {
//       return {Mul(inputs[0], factor_)};
//     }
//     std::vector<Tensor> Backward(FunctionContext& context, TensorSpan gradients) override {
//       return {Mul(gradients[0], factor_)};
//     }
//    private:
//     double factor_;
//   };
//   Tensor y = Apply(std::make_shared<Scale>(2.0), {x})[0];
//
// For ops with kernels, a row of the op table and RegisterGradient (gradient.h) serve better.
#ifndef LOCKSTEP_AUTOGRAD_CUSTOM_FUNCTION_H_
#define LOCKSTEP_AUTOGRAD_CUSTOM_FUNCTION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd {

// What one call of a CustomFunction keeps between its forward and backward.
class FunctionContext {
 public:
  virtual ~FunctionContext() = default;

  // In Forward, once: inputs, outputs or other tensors that Backward needs. Goes through
  // saved-tensor hooks, version checks and SavedBytes(). Undefined tensors stay undefined.
  virtual void SaveForBackward(TensorSpan tensors) = 0;
  // In Backward: those tensors, with history when the backward creates a graph. Throws
  // FailedPrecondition when one was modified in place or the graph was freed.
  virtual std::vector<Tensor> Saved() const = 0;

  // Whether a gradient for input `index` is wanted. In Forward: whether it ever can be. In
  // Backward: in this call; the engine may call Backward twice with disjoint sets
  // (split_backward.h).
  virtual bool Wanted(int index) const = 0;

  // In Forward: output `index` never requires a gradient. Outputs that are not floating point are
  // never differentiable.
  virtual void MarkNonDifferentiable(int index) = 0;

  // In Forward: undefined gradients reach Backward as zeros (default) or as they are.
  virtual void SetMaterializeGradients(bool materialize) = 0;

  // In Backward: whether the backward is itself recorded.
  virtual bool CreatesGraph() const = 0;
};

// One object is used for one call of Apply (members may then keep state from Forward to Backward)
// or for several (they must not).
class CustomFunction {
 public:
  virtual ~CustomFunction() = default;

  // Shown in errors and by GradNodeName().
  virtual std::string Name() const = 0;
  // Runs without recording. Must not modify inputs that require gradients in place. May return an
  // input; the caller gets an alias of it.
  virtual std::vector<Tensor> Forward(FunctionContext& context, TensorSpan inputs) = 0;
  // `gradients`: one for each output. Returns one for each input, of the input's shape, dtype and
  // device; undefined for inputs that are not wanted or have none. Runs under the thread state of
  // the forward call.
  virtual std::vector<Tensor> Backward(FunctionContext& context, TensorSpan gradients) = 0;
  // Whether Backward runs as soon as its gradients are complete, before all else that could run on
  // the device, as accumulation into leaves does. For functions that hand the gradients of leaves
  // on: made early in the forward pass, they would wait for the rest of the backward, and so would
  // the memory of their gradients.
  virtual bool RunsBackwardAtOnce() const { return false; }
};

// Runs the forward and records it when an input requires a gradient. In a SubstitutionScope
// (tensor/substitution.h) it takes what stands for the inputs, as ops do. Throws InvalidArgument
// for a null function or an undefined output, FailedPrecondition for an input changed in place, and
// what Forward throws. Inputs may be undefined.
std::vector<Tensor> Apply(std::shared_ptr<CustomFunction> function, TensorSpan inputs);

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_CUSTOM_FUNCTION_H_
