// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Gradients of matrix products: products again, with transpose flags instead of transposed copies.

#include "lockstep/autograd/gradients/builtin.h"
#include "lockstep/autograd/gradients/util.h"

namespace lockstep::autograd::gradients {
namespace {

// [..., R, C] as [rows, C].
Tensor AsMatrix(const Tensor& x) {
  const int64_t columns = x.shape().back();
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < x.shape().size(); ++i) rows *= x.shape()[i];
  return Reshape(x, {rows, columns});
}

// c = a b, with a [M, K] and b [K, N] after their flags.
Tensor GradientOfA(const Context& c, const MatMulAttributes& flags) {
  const Tensor g = c.Gradient(), b = c.Input(1);
  return flags.transpose_a
             ? MatMul(b, g, {.transpose_a = flags.transpose_b, .transpose_b = true})
             : MatMul(g, b, {.transpose_a = false, .transpose_b = !flags.transpose_b});
}

Tensor GradientOfB(const Context& c, const MatMulAttributes& flags) {
  const Tensor g = c.Gradient(), a = c.Input(0);
  // One matrix for a whole batch: one product over all rows instead of a product for each entry and
  // a sum.
  if (!flags.transpose_a && c.InputMeta(1).shape.size() == 2 && a.rank() > 2) {
    const Tensor rows = AsMatrix(a), grads = AsMatrix(g);
    return flags.transpose_b ? MatMul(grads, rows, {.transpose_a = true, .transpose_b = false})
                             : MatMul(rows, grads, {.transpose_a = true, .transpose_b = false});
  }
  return flags.transpose_b
             ? MatMul(g, a, {.transpose_a = true, .transpose_b = flags.transpose_a})
             : MatMul(a, g, {.transpose_a = !flags.transpose_a, .transpose_b = false});
}

}  // namespace

GradientInfo MatMulGradient() {
  return {.saves =
              [](const OpCall&, const InputMask& wanted) {
                return Saves{.inputs = (wanted[0] ? 0b10u : 0u) | (wanted[1] ? 0b01u : 0u)};
              },
          .gradient =
              [](const Context& c, Results d) {
                const auto& flags = c.attributes_as<MatMulAttributes>();
                if (c.Wanted(0)) d[0] = Unbroadcast(GradientOfA(c, flags), c.InputMeta(0));
                if (c.Wanted(1)) d[1] = Unbroadcast(GradientOfB(c, flags), c.InputMeta(1));
              }};
}

// y = x weight^T + bias
GradientInfo LinearGradient() {
  return {.saves =
              [](const OpCall&, const InputMask& wanted) {
                return Saves{.inputs = (wanted[0] ? 0b10u : 0u) | (wanted[1] ? 0b01u : 0u)};
              },
          .gradient =
              [](const Context& c, Results d) {
                const Tensor g = c.Gradient();
                if (c.Wanted(0)) {
                  d[0] = Reshape(MatMul(AsMatrix(g), c.Input(1)), c.InputMeta(0).shape);
                }
                if (c.Wanted(1)) {
                  d[1] = MatMul(AsMatrix(g), AsMatrix(c.Input(0)),
                                {.transpose_a = true, .transpose_b = false});
                }
                if (c.Wanted(2)) d[2] = Sum(AsMatrix(g), {0});
              }};
}

}  // namespace lockstep::autograd::gradients
