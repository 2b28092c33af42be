// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Elementwise ops, arithmetic with broadcasting, comparisons, casts and copies.
//
// Broadcasting and type promotion follow PyTorch's rules; operands of different dtypes are cast
// first (those of a float32 sum while it is computed). Each function returns a new tensor; the
// ...InPlace forms write into the first argument (whose shape and dtype must be those of the
// result) and return it. All throw InvalidArgument for operands that do not fit, naming shapes,
// dtypes and devices.
#ifndef LOCKSTEP_TENSOR_OPS_ELEMENTWISE_H_
#define LOCKSTEP_TENSOR_OPS_ELEMENTWISE_H_

#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// ---- Arithmetic ----
// x + alpha * y
Tensor Add(const Tensor& x, const Tensor& y, const Scalar& alpha = 1);
Tensor Add(const Tensor& x, const Scalar& y);
Tensor Sub(const Tensor& x, const Tensor& y);
Tensor Sub(const Tensor& x, const Scalar& y);
Tensor Mul(const Tensor& x, const Tensor& y);
Tensor Mul(const Tensor& x, const Scalar& y);
// True division: integers give float32.
Tensor Div(const Tensor& x, const Tensor& y);
Tensor Div(const Tensor& x, const Scalar& y);
Tensor Pow(const Tensor& x, const Tensor& y);
Tensor Pow(const Tensor& x, const Scalar& exponent);
Tensor Maximum(const Tensor& x, const Tensor& y);
Tensor Minimum(const Tensor& x, const Tensor& y);

Tensor AddInPlace(const Tensor& x, const Tensor& y, const Scalar& alpha = 1);
Tensor AddInPlace(const Tensor& x, const Scalar& y);
Tensor SubInPlace(const Tensor& x, const Tensor& y);
Tensor MulInPlace(const Tensor& x, const Tensor& y);
Tensor MulInPlace(const Tensor& x, const Scalar& y);
Tensor DivInPlace(const Tensor& x, const Tensor& y);
Tensor DivInPlace(const Tensor& x, const Scalar& y);

inline Tensor operator+(const Tensor& x, const Tensor& y) { return Add(x, y); }
inline Tensor operator-(const Tensor& x, const Tensor& y) { return Sub(x, y); }
inline Tensor operator*(const Tensor& x, const Tensor& y) { return Mul(x, y); }
inline Tensor operator/(const Tensor& x, const Tensor& y) { return Div(x, y); }
inline Tensor operator+(const Tensor& x, const Scalar& y) { return Add(x, y); }
inline Tensor operator-(const Tensor& x, const Scalar& y) { return Sub(x, y); }
inline Tensor operator*(const Tensor& x, const Scalar& y) { return Mul(x, y); }
inline Tensor operator/(const Tensor& x, const Scalar& y) { return Div(x, y); }
inline Tensor operator+(const Scalar& x, const Tensor& y) { return Add(y, x); }
inline Tensor operator*(const Scalar& x, const Tensor& y) { return Mul(y, x); }
Tensor operator-(const Scalar& x, const Tensor& y);
Tensor operator-(const Tensor& x);

// ---- One tensor. Integers are cast to float32 where the result is not whole. ----
Tensor Neg(const Tensor& x);
Tensor Abs(const Tensor& x);
Tensor Sign(const Tensor& x);
Tensor Exp(const Tensor& x);
Tensor Log(const Tensor& x);
Tensor Sqrt(const Tensor& x);
Tensor Rsqrt(const Tensor& x);
Tensor Reciprocal(const Tensor& x);
Tensor Erf(const Tensor& x);
Tensor Tanh(const Tensor& x);
Tensor Sigmoid(const Tensor& x);
Tensor Relu(const Tensor& x);
Tensor Gelu(const Tensor& x, GeluKind kind = GeluKind::kErf);
// The gradient is 0 at the bounds and beyond. Throws InvalidArgument when low > high.
Tensor Clamp(const Tensor& x, const Scalar& low, const Scalar& high);
// Keeps column - row <= diagonal of each matrix [..., R, C]; Triu keeps >= diagonal.
Tensor Tril(const Tensor& x, int64_t diagonal = 0);
Tensor Triu(const Tensor& x, int64_t diagonal = 0);

Tensor NegInPlace(const Tensor& x);
Tensor ExpInPlace(const Tensor& x);
Tensor LogInPlace(const Tensor& x);
Tensor SqrtInPlace(const Tensor& x);
Tensor TanhInPlace(const Tensor& x);
Tensor SigmoidInPlace(const Tensor& x);
Tensor ReluInPlace(const Tensor& x);
Tensor GeluInPlace(const Tensor& x, GeluKind kind = GeluKind::kErf);
Tensor ClampInPlace(const Tensor& x, const Scalar& low, const Scalar& high);
Tensor FillInPlace(const Tensor& x, const Scalar& value);
Tensor ZeroInPlace(const Tensor& x);

// ---- Comparisons and logic: bool results ----
Tensor Equal(const Tensor& x, const Tensor& y);
Tensor NotEqual(const Tensor& x, const Tensor& y);
Tensor Less(const Tensor& x, const Tensor& y);
Tensor LessEqual(const Tensor& x, const Tensor& y);
Tensor Greater(const Tensor& x, const Tensor& y);
Tensor GreaterEqual(const Tensor& x, const Tensor& y);
Tensor Equal(const Tensor& x, const Scalar& y);
Tensor NotEqual(const Tensor& x, const Scalar& y);
Tensor Less(const Tensor& x, const Scalar& y);
Tensor LessEqual(const Tensor& x, const Scalar& y);
Tensor Greater(const Tensor& x, const Scalar& y);
Tensor GreaterEqual(const Tensor& x, const Scalar& y);
Tensor LogicalAnd(const Tensor& x, const Tensor& y);
Tensor LogicalOr(const Tensor& x, const Tensor& y);
Tensor LogicalNot(const Tensor& x);
Tensor IsFinite(const Tensor& x);
// x where condition (bool) is true, else y.
Tensor Where(const Tensor& condition, const Tensor& x, const Tensor& y);
Tensor Where(const Tensor& condition, const Tensor& x, const Scalar& y);

// ---- Copies ----
// A row-major copy, always.
Tensor Clone(const Tensor& x);
// x itself when row-major, else a copy.
Tensor Contiguous(const Tensor& x);
// x itself when it has the dtype, else a copy.
Tensor To(const Tensor& x, DType dtype);
struct ToOptions {
  bool non_blocking = false;  // the copy runs on the copy stream; uses of the result wait for it
};
// x itself when it is there, else a row-major copy on `device`.
Tensor To(const Tensor& x, Device device, const ToOptions& options = {});
// Writes `source`, broadcast and cast, into `destination` (same device). Returns destination.
Tensor CopyInto(const Tensor& destination, const Tensor& source);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OPS_ELEMENTWISE_H_
