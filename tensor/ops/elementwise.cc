// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Arithmetic, functions of one tensor and their in-place forms. Comparisons and copies are in
// comparison.cc and copy.cc.

#include "lockstep/tensor/ops/elementwise.h"

#include "absl/types/span.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/ops/op_util.h"

namespace lockstep {
namespace {

using ops::CastTo;
using ops::MaybeCast;
using ops::OperandPair;
using ops::RequireDefined;

// ---- Two tensors ----

Tensor Binary(OpId op, const Tensor& x, const Tensor& y, DType dtype, const Scalars& scalars = {}) {
  const MaybeCast a(x, dtype), b(y, dtype);
  return Dispatch1(op, OperandPair(a.get(), b.get()), scalars);
}

// Whether row Add takes the operands of a sum of this dtype without casts.
bool AddsUncast(const Tensor& x, const Tensor& y, DType dtype) {
  return dtype == DType::kFloat32 && x.dtype() != y.dtype() && IsFloatingPoint(x.dtype()) &&
         IsFloatingPoint(y.dtype()) && PromoteTypes(x.dtype(), y.dtype()) == DType::kFloat32;
}

Tensor SumOf(const Tensor& x, const Tensor& y, DType dtype, const Scalar& alpha) {
  if (AddsUncast(x, y, dtype)) return Dispatch1(OpId::kAdd, OperandPair(x, y), {alpha});
  return Binary(OpId::kAdd, x, y, dtype, {alpha});
}

Tensor BinaryInPlace(OpId op, const char* call, const Tensor& x, const Tensor& y, DType dtype,
                     const Scalars& scalars = {}) {
  if (dtype != x.dtype()) {
    ops::Refuse(call, "the result of ", x.DebugString(), " with ", y.DebugString(), " has dtype ",
                DTypeName(dtype), ", which x cannot hold; cast y with To(y, ", DTypeName(x.dtype()),
                "), or use the form that returns a new tensor");
  }
  if (op == OpId::kAdd && AddsUncast(x, y, dtype)) {
    return DispatchInPlace(op, OperandPair(x, y), scalars);
  }
  const MaybeCast b(y, dtype);
  return DispatchInPlace(op, OperandPair(x, b.get()), scalars);
}

void RequireBoth(const Tensor& x, const Tensor& y, const char* call) {
  RequireDefined(x, call, "x");
  RequireDefined(y, call, "y");
}

// A multiple that a sum in an integer or bool `dtype` can be taken with, or a bool one.
void RequireUnusualAlpha(const Scalar& alpha, DType dtype, const char* call) {
  if (!IsFloatingPoint(dtype) && alpha.kind() == Scalar::Kind::kDouble) {
    ops::Refuse(call, "alpha ", ops::ToString(alpha), " is a floating-point number and the result ",
                "has dtype ", DTypeName(dtype), "; cast a tensor with To(x, float32) first");
  }
  if (alpha.kind() == Scalar::Kind::kBool && dtype != DType::kBool) {
    ops::Refuse(call, "alpha is a bool and the result has dtype ", DTypeName(dtype),
                "; use a number");
  }
  ops::RequireFits(alpha, dtype, call);
}

void RequireAlpha(const Scalar& alpha, DType dtype, const char* call) {
  if (IsFloatingPoint(dtype) && alpha.kind() != Scalar::Kind::kBool) return;
  RequireUnusualAlpha(alpha, dtype, call);
}

void RefuseBool(DType dtype, const char* call) {
  if (dtype == DType::kBool) {
    ops::Refuse(call, "a difference of bool tensors is not defined; use NotEqual (exclusive or), ",
                "or cast one with To");
  }
}

// ---- A tensor and a scalar ----

Tensor WithScalar(OpId op, const char* call, const Tensor& x, const Scalar& value) {
  RequireDefined(x, call, "x");
  const DType dtype = PromoteWithScalar(x.dtype(), value);
  ops::RequireFits(value, dtype, call);
  const MaybeCast input(x, dtype);
  return Dispatch1(op, input.span(), {value});
}

// In place the tensor keeps its dtype, so the scalar must not need another.
void RequireScalarKeepsDType(const Tensor& x, const Scalar& value, DType dtype, const char* call) {
  if (dtype == x.dtype()) return;
  ops::Refuse(call, "the result of ", x.DebugString(), " with ", ops::ToString(value),
              " has dtype ", DTypeName(dtype),
              ", which x cannot hold; use the form that returns a new tensor");
}

Tensor WithScalarInPlace(OpId op, const char* call, const Tensor& x, const Scalar& value) {
  RequireDefined(x, call, "x");
  RequireScalarKeepsDType(x, value, PromoteWithScalar(x.dtype(), value), call);
  ops::RequireFits(value, x.dtype(), call);
  return DispatchInPlace(op, absl::MakeConstSpan(&x, 1), {value});
}

// -value; a bool counts as 0 or 1, and the smallest integer wraps around to itself.
Scalar Negative(const Scalar& value) {
  if (value.kind() == Scalar::Kind::kDouble) return -value.AsDouble();
  return static_cast<int64_t>(-value.AsUInt64());
}

// ---- One tensor ----

Tensor Unary(OpId op, const char* call, const Tensor& x) {
  RequireDefined(x, call, "x");
  return Dispatch1(op, absl::MakeConstSpan(&x, 1));
}

Tensor UnaryFloat(OpId op, const char* call, const Tensor& x,
                  const Attributes& attributes = EmptyAttributes()) {
  RequireDefined(x, call, "x");
  const MaybeCast input(x, ops::FloatingDType(x.dtype()));
  return Dispatch1(op, input.span(), {}, attributes);
}

Tensor UnaryInPlace(OpId op, const char* call, const Tensor& x,
                    const Attributes& attributes = EmptyAttributes()) {
  RequireDefined(x, call, "x");
  return DispatchInPlace(op, absl::MakeConstSpan(&x, 1), {}, attributes);
}

Tensor Triangle(const char* call, const Tensor& x, int64_t diagonal, bool upper) {
  RequireDefined(x, call, "x");
  TriangleAttributes attributes;
  attributes.diagonal = diagonal;
  attributes.upper = upper;
  return Dispatch1(OpId::kTriangularMask, absl::MakeConstSpan(&x, 1), {}, attributes);
}

// Returns the dtype of the result.
DType RequireBounds(const Tensor& x, const Scalar& low, const Scalar& high, const char* call) {
  RequireDefined(x, call, "x");
  const bool whole = low.kind() != Scalar::Kind::kDouble && high.kind() != Scalar::Kind::kDouble;
  const bool ordered = whole ? low.AsInt64() <= high.AsInt64() : low.AsDouble() <= high.AsDouble();
  if (!ordered) {
    ops::Refuse(call, "low ", ops::ToString(low), " is not below high ", ops::ToString(high),
                "; exchange them");
  }
  return PromoteWithScalar(PromoteWithScalar(x.dtype(), low), high);
}

}  // namespace

// ---- Arithmetic ----

Tensor Add(const Tensor& x, const Tensor& y, const Scalar& alpha) {
  RequireBoth(x, y, "Add");
  const DType dtype = ops::ResultType(x, y);
  RequireAlpha(alpha, dtype, "Add");
  return SumOf(x, y, dtype, alpha);
}
Tensor Add(const Tensor& x, const Scalar& y) { return WithScalar(OpId::kAddScalar, "Add", x, y); }

Tensor Sub(const Tensor& x, const Tensor& y) {
  RequireBoth(x, y, "Sub");
  const DType dtype = ops::ResultType(x, y);
  RefuseBool(dtype, "Sub");
  return SumOf(x, y, dtype, -1);
}
Tensor Sub(const Tensor& x, const Scalar& y) {
  RequireDefined(x, "Sub", "x");
  const DType dtype = PromoteWithScalar(x.dtype(), y);
  RefuseBool(dtype, "Sub");
  ops::RequireFits(y, dtype, "Sub");
  const MaybeCast input(x, dtype);
  return Dispatch1(OpId::kAddScalar, input.span(), {Negative(y)});
}

Tensor Mul(const Tensor& x, const Tensor& y) {
  RequireBoth(x, y, "Mul");
  return Binary(OpId::kMul, x, y, ops::ResultType(x, y));
}
Tensor Mul(const Tensor& x, const Scalar& y) { return WithScalar(OpId::kMulScalar, "Mul", x, y); }

Tensor Div(const Tensor& x, const Tensor& y) {
  RequireBoth(x, y, "Div");
  return Binary(OpId::kDiv, x, y, ops::FloatingDType(ops::ResultType(x, y)));
}
Tensor Div(const Tensor& x, const Scalar& y) {
  RequireDefined(x, "Div", "x");
  const MaybeCast input(x, ops::FloatingDType(PromoteWithScalar(x.dtype(), y)));
  return Dispatch1(OpId::kDivScalar, input.span(), {y});
}

Tensor Pow(const Tensor& x, const Tensor& y) {
  RequireBoth(x, y, "Pow");
  return Binary(OpId::kPow, x, y, ops::ResultType(x, y));
}
Tensor Pow(const Tensor& x, const Scalar& exponent) {
  RequireDefined(x, "Pow", "x");
  const DType dtype = PromoteWithScalar(x.dtype(), exponent);
  if (IsIntegral(dtype) && exponent.AsInt64() < 0) {
    ops::Refuse("Pow", "integers to the negative power ", ops::ToString(exponent),
                " are not whole; cast x with To(x, float32)");
  }
  const MaybeCast input(x, dtype);
  return Dispatch1(OpId::kPowScalar, input.span(), {exponent});
}

Tensor Maximum(const Tensor& x, const Tensor& y) {
  RequireBoth(x, y, "Maximum");
  return Binary(OpId::kMaximum, x, y, ops::ResultType(x, y));
}
Tensor Minimum(const Tensor& x, const Tensor& y) {
  RequireBoth(x, y, "Minimum");
  return Binary(OpId::kMinimum, x, y, ops::ResultType(x, y));
}

Tensor AddInPlace(const Tensor& x, const Tensor& y, const Scalar& alpha) {
  RequireBoth(x, y, "AddInPlace");
  const DType dtype = ops::ResultType(x, y);
  RequireAlpha(alpha, dtype, "AddInPlace");
  return BinaryInPlace(OpId::kAdd, "AddInPlace", x, y, dtype, {alpha});
}
Tensor AddInPlace(const Tensor& x, const Scalar& y) {
  return WithScalarInPlace(OpId::kAddScalar, "AddInPlace", x, y);
}
Tensor SubInPlace(const Tensor& x, const Tensor& y) {
  RequireBoth(x, y, "SubInPlace");
  const DType dtype = ops::ResultType(x, y);
  RefuseBool(dtype, "SubInPlace");
  return BinaryInPlace(OpId::kAdd, "SubInPlace", x, y, dtype, {-1});
}
Tensor MulInPlace(const Tensor& x, const Tensor& y) {
  RequireBoth(x, y, "MulInPlace");
  return BinaryInPlace(OpId::kMul, "MulInPlace", x, y, ops::ResultType(x, y));
}
Tensor MulInPlace(const Tensor& x, const Scalar& y) {
  return WithScalarInPlace(OpId::kMulScalar, "MulInPlace", x, y);
}
Tensor DivInPlace(const Tensor& x, const Tensor& y) {
  RequireBoth(x, y, "DivInPlace");
  return BinaryInPlace(OpId::kDiv, "DivInPlace", x, y, ops::FloatingDType(ops::ResultType(x, y)));
}
Tensor DivInPlace(const Tensor& x, const Scalar& y) {
  RequireDefined(x, "DivInPlace", "x");
  RequireScalarKeepsDType(x, y, ops::FloatingDType(x.dtype()), "DivInPlace");
  return DispatchInPlace(OpId::kDivScalar, absl::MakeConstSpan(&x, 1), {y});
}

Tensor operator-(const Scalar& x, const Tensor& y) {
  RequireDefined(y, "Sub", "y");
  const DType dtype = PromoteWithScalar(y.dtype(), x);
  RefuseBool(dtype, "Sub");
  ops::RequireFits(x, dtype, "Sub");
  // Exact: negation is, and so x + (-y) rounds as x - y does.
  return Add(Neg(CastTo(y, dtype)), x);
}
Tensor operator-(const Tensor& x) { return Neg(x); }

// ---- One tensor ----

Tensor Neg(const Tensor& x) { return Unary(OpId::kNeg, "Neg", x); }
Tensor Abs(const Tensor& x) { return Unary(OpId::kAbs, "Abs", x); }
Tensor Sign(const Tensor& x) { return Unary(OpId::kSign, "Sign", x); }
Tensor Relu(const Tensor& x) { return Unary(OpId::kRelu, "Relu", x); }
Tensor Exp(const Tensor& x) { return UnaryFloat(OpId::kExp, "Exp", x); }
Tensor Log(const Tensor& x) { return UnaryFloat(OpId::kLog, "Log", x); }
Tensor Sqrt(const Tensor& x) { return UnaryFloat(OpId::kSqrt, "Sqrt", x); }
Tensor Rsqrt(const Tensor& x) { return UnaryFloat(OpId::kRsqrt, "Rsqrt", x); }
Tensor Reciprocal(const Tensor& x) { return UnaryFloat(OpId::kReciprocal, "Reciprocal", x); }
Tensor Erf(const Tensor& x) { return UnaryFloat(OpId::kErf, "Erf", x); }
Tensor Tanh(const Tensor& x) { return UnaryFloat(OpId::kTanh, "Tanh", x); }
Tensor Sigmoid(const Tensor& x) { return UnaryFloat(OpId::kSigmoid, "Sigmoid", x); }

Tensor Gelu(const Tensor& x, GeluKind kind) {
  GeluAttributes attributes;
  attributes.kind = kind;
  return UnaryFloat(OpId::kGelu, "Gelu", x, attributes);
}

Tensor Clamp(const Tensor& x, const Scalar& low, const Scalar& high) {
  const DType dtype = RequireBounds(x, low, high, "Clamp");
  const MaybeCast input(x, dtype);
  return Dispatch1(OpId::kClamp, input.span(), {low, high});
}

Tensor Tril(const Tensor& x, int64_t diagonal) { return Triangle("Tril", x, diagonal, false); }
Tensor Triu(const Tensor& x, int64_t diagonal) { return Triangle("Triu", x, diagonal, true); }

Tensor NegInPlace(const Tensor& x) { return UnaryInPlace(OpId::kNeg, "NegInPlace", x); }
Tensor ExpInPlace(const Tensor& x) { return UnaryInPlace(OpId::kExp, "ExpInPlace", x); }
Tensor LogInPlace(const Tensor& x) { return UnaryInPlace(OpId::kLog, "LogInPlace", x); }
Tensor SqrtInPlace(const Tensor& x) { return UnaryInPlace(OpId::kSqrt, "SqrtInPlace", x); }
Tensor TanhInPlace(const Tensor& x) { return UnaryInPlace(OpId::kTanh, "TanhInPlace", x); }
Tensor SigmoidInPlace(const Tensor& x) { return UnaryInPlace(OpId::kSigmoid, "SigmoidInPlace", x); }
Tensor ReluInPlace(const Tensor& x) { return UnaryInPlace(OpId::kRelu, "ReluInPlace", x); }

Tensor GeluInPlace(const Tensor& x, GeluKind kind) {
  GeluAttributes attributes;
  attributes.kind = kind;
  return UnaryInPlace(OpId::kGelu, "GeluInPlace", x, attributes);
}

Tensor ClampInPlace(const Tensor& x, const Scalar& low, const Scalar& high) {
  const DType dtype = RequireBounds(x, low, high, "ClampInPlace");
  RequireScalarKeepsDType(x, dtype == PromoteWithScalar(x.dtype(), low) ? low : high, dtype,
                          "ClampInPlace");
  return DispatchInPlace(OpId::kClamp, absl::MakeConstSpan(&x, 1), {low, high});
}

Tensor FillInPlace(const Tensor& x, const Scalar& value) {
  RequireDefined(x, "FillInPlace", "x");
  ops::RequireFits(value, x.dtype(), "FillInPlace");
  return DispatchInPlace(OpId::kFill, absl::MakeConstSpan(&x, 1), {value});
}

Tensor ZeroInPlace(const Tensor& x) {
  RequireDefined(x, "ZeroInPlace", "x");
  return DispatchInPlace(OpId::kFill, absl::MakeConstSpan(&x, 1), {0});
}

}  // namespace lockstep
