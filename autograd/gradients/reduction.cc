// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Gradients of reductions.

#include "lockstep/autograd/gradients/builtin.h"
#include "lockstep/autograd/gradients/util.h"

namespace lockstep::autograd::gradients {
namespace {

// The input's shape with 1 for each reduced dimension.
Shape KeptShape(const Context& c) {
  Shape shape = c.InputMeta(0).shape;
  for (const int64_t dim : c.attributes_as<ReduceAttributes>().dims) shape[dim] = 1;
  return shape;
}

// `reduced` (of the result's shape) stretched to the input's shape, without a copy.
Tensor ExpandReduced(const Context& c, const Tensor& reduced) {
  return Expand(Reshape(reduced, KeptShape(c)), c.InputMeta(0).shape);
}

int64_t ReducedCount(const Context& c) {
  int64_t count = 1;
  for (const int64_t dim : c.attributes_as<ReduceAttributes>().dims) {
    count *= c.InputMeta(0).shape[dim];
  }
  return count;
}

// Max and Min: equal elements share the gradient. Where the result is NaN nothing equals it, and
// the division by 0 makes the gradient NaN, too.
void ExtremumGradient(const Context& c, Results dx) {
  const Tensor x = c.Input(0);
  const Tensor chosen = Equal(x, ExpandReduced(c, c.Output()));
  const Shape& dims = c.attributes_as<ReduceAttributes>().dims;
  const DType dtype = c.InputMeta(0).dtype;
  // No dims: nothing was reduced. (The public Sum takes that for all of them.)
  const Tensor ones = To(chosen, dtype);
  const Tensor count = dims.empty() ? ones : Sum(ones, dims, /*keepdim=*/true);
  const Tensor given = Where(chosen, ExpandReduced(c, c.Gradient()), 0.0);
  dx[0] = Div(given, count);
}

}  // namespace

GradientInfo SumGradient() {
  return {.gradient = [](const Context& c, Results dx) { dx[0] = ExpandReduced(c, c.Gradient()); }};
}

GradientInfo MeanGradient() {
  return {.gradient = [](const Context& c, Results dx) {
    const int64_t count = ReducedCount(c);
    dx[0] = ExpandReduced(c, count == 0 ? c.Gradient() : Div(c.Gradient(), count));
  }};
}

GradientInfo MaxGradient() { return {.saves = SaveAlways<0b1, 0b1>, .gradient = ExtremumGradient}; }

GradientInfo MinGradient() { return {.saves = SaveAlways<0b1, 0b1>, .gradient = ExtremumGradient}; }

}  // namespace lockstep::autograd::gradients
