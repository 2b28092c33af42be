// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Comparisons, logic and selection of elementwise.h.

#include "absl/types/span.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/op_util.h"

namespace lockstep {
namespace {

using ops::CastTo;
using ops::MaybeCast;
using ops::OperandPair;
using ops::RequireDefined;

Tensor Compare(OpId op, const char* call, const Tensor& x, const Tensor& y) {
  RequireDefined(x, call, "x");
  RequireDefined(y, call, "y");
  const DType dtype = ops::ResultType(x, y);
  const MaybeCast a(x, dtype), b(y, dtype);
  return Dispatch1(op, OperandPair(a.get(), b.get()));
}

Tensor Compare(OpId op, const char* call, const Tensor& x, const Scalar& y) {
  RequireDefined(x, call, "x");
  DType dtype = PromoteWithScalar(x.dtype(), y);
  // A small integer dtype would wrap the number around and compare with another.
  if (!ops::Fits(y, dtype)) dtype = DType::kInt64;
  const Tensor inputs[] = {CastTo(x, dtype), ops::ScalarTensor(y, dtype, x.device())};
  return Dispatch1(op, inputs);
}

Tensor Logical(OpId op, const char* call, const Tensor& x, const Tensor& y) {
  RequireDefined(x, call, "x");
  RequireDefined(y, call, "y");
  const DType dtype = x.dtype() == y.dtype() ? x.dtype() : DType::kBool;
  const MaybeCast a(x, dtype), b(y, dtype);
  return Dispatch1(op, OperandPair(a.get(), b.get()));
}

}  // namespace

Tensor Equal(const Tensor& x, const Tensor& y) { return Compare(OpId::kEqual, "Equal", x, y); }
Tensor NotEqual(const Tensor& x, const Tensor& y) {
  return Compare(OpId::kNotEqual, "NotEqual", x, y);
}
Tensor Less(const Tensor& x, const Tensor& y) { return Compare(OpId::kLess, "Less", x, y); }
Tensor LessEqual(const Tensor& x, const Tensor& y) {
  return Compare(OpId::kLessEqual, "LessEqual", x, y);
}
Tensor Greater(const Tensor& x, const Tensor& y) {
  return Compare(OpId::kGreater, "Greater", x, y);
}
Tensor GreaterEqual(const Tensor& x, const Tensor& y) {
  return Compare(OpId::kGreaterEqual, "GreaterEqual", x, y);
}

Tensor Equal(const Tensor& x, const Scalar& y) { return Compare(OpId::kEqual, "Equal", x, y); }
Tensor NotEqual(const Tensor& x, const Scalar& y) {
  return Compare(OpId::kNotEqual, "NotEqual", x, y);
}
Tensor Less(const Tensor& x, const Scalar& y) { return Compare(OpId::kLess, "Less", x, y); }
Tensor LessEqual(const Tensor& x, const Scalar& y) {
  return Compare(OpId::kLessEqual, "LessEqual", x, y);
}
Tensor Greater(const Tensor& x, const Scalar& y) {
  return Compare(OpId::kGreater, "Greater", x, y);
}
Tensor GreaterEqual(const Tensor& x, const Scalar& y) {
  return Compare(OpId::kGreaterEqual, "GreaterEqual", x, y);
}

Tensor LogicalAnd(const Tensor& x, const Tensor& y) {
  return Logical(OpId::kLogicalAnd, "LogicalAnd", x, y);
}
Tensor LogicalOr(const Tensor& x, const Tensor& y) {
  return Logical(OpId::kLogicalOr, "LogicalOr", x, y);
}
Tensor LogicalNot(const Tensor& x) {
  RequireDefined(x, "LogicalNot", "x");
  return Dispatch1(OpId::kLogicalNot, absl::MakeConstSpan(&x, 1));
}
Tensor IsFinite(const Tensor& x) {
  RequireDefined(x, "IsFinite", "x");
  return Dispatch1(OpId::kIsFinite, absl::MakeConstSpan(&x, 1));
}

Tensor Where(const Tensor& condition, const Tensor& x, const Tensor& y) {
  RequireDefined(condition, "Where", "condition");
  RequireDefined(x, "Where", "x");
  RequireDefined(y, "Where", "y");
  const DType dtype = ops::ResultType(x, y);
  const Tensor inputs[] = {condition, CastTo(x, dtype), CastTo(y, dtype)};
  return Dispatch1(OpId::kWhere, inputs);
}

Tensor Where(const Tensor& condition, const Tensor& x, const Scalar& y) {
  RequireDefined(condition, "Where", "condition");
  RequireDefined(x, "Where", "x");
  const DType dtype = PromoteWithScalar(x.dtype(), y);
  ops::RequireFits(y, dtype, "Where");
  const Tensor inputs[] = {condition, CastTo(x, dtype), ops::ScalarTensor(y, dtype, x.device())};
  return Dispatch1(OpId::kWhere, inputs);
}

}  // namespace lockstep
