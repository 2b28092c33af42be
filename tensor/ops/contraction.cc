// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/contraction.h"

#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/op_util.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep {
namespace {

Tensor MatMulMatrices(const Tensor& a, const Tensor& b, const MatMulOptions& options) {
  MatMulAttributes attributes;
  attributes.transpose_a = options.transpose_a;
  attributes.transpose_b = options.transpose_b;
  const Tensor inputs[] = {a, b};
  return Dispatch1(OpId::kMatMul, inputs, {}, attributes);
}

// Checked here, so that the message shows the vector as the caller gave it.
void RequireVectorFits(const Tensor& a, const Tensor& b, const MatMulOptions& options) {
  if (a.rank() == 0 || b.rank() == 0) {
    ops::Refuse("MatMul", "a zero-dimensional operand: ", ToString(a.shape()), " x ",
                ToString(b.shape()), "; use Mul");
  }
  if ((a.rank() == 1 && options.transpose_a) || (b.rank() == 1 && options.transpose_b)) {
    ops::Refuse("MatMul", "one-dimensional operands cannot be transposed: ", ToString(a.shape()),
                options.transpose_a ? " transposed" : "", " x ", ToString(b.shape()),
                options.transpose_b ? " transposed" : "");
  }
  const int64_t inner_a = a.size(options.transpose_a ? -2 : -1);
  const int64_t inner_b = b.size(b.rank() == 1 || options.transpose_b ? -1 : -2);
  if (inner_a != inner_b) {
    ops::Refuse("MatMul", "inner dimensions differ: ", ToString(a.shape()),
                options.transpose_a ? " transposed" : "", " x ", ToString(b.shape()),
                options.transpose_b ? " transposed" : "");
  }
}

}  // namespace

Tensor MatMul(const Tensor& a, const Tensor& b, const MatMulOptions& options) {
  ops::RequireDefined(a, "MatMul", "a");
  ops::RequireDefined(b, "MatMul", "b");
  if (a.rank() >= 2 && b.rank() >= 2) return MatMulMatrices(a, b, options);
  RequireVectorFits(a, b, options);
  // A vector becomes a matrix of one row (a) or column (b), which then leaves the result.
  Tensor product = MatMulMatrices(a.rank() == 1 ? Unsqueeze(a, 0) : a,
                                  b.rank() == 1 ? Unsqueeze(b, 1) : b, options);
  if (b.rank() == 1) product = Squeeze(product, -1);
  if (a.rank() == 1) product = Squeeze(product, b.rank() == 1 ? -1 : -2);
  return product;
}

Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  ops::RequireDefined(x, "Linear", "x");
  ops::RequireDefined(weight, "Linear", "weight");
  const Tensor inputs[] = {x, weight, bias};
  return Dispatch1(OpId::kLinear, inputs);
}

}  // namespace lockstep
