// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/op_util.h"

#include <cmath>
#include <limits>

#include "absl/types/span.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op_attributes.h"

namespace lockstep {
namespace ops {
namespace {

struct Range {
  int64_t low, high;
};

Range IntegerRange(DType dtype) {
  switch (dtype) {
    case DType::kInt32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case DType::kUInt8:
      return {0, 255};
    default:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }
}

}  // namespace

void RefuseUndefined(absl::string_view call, absl::string_view argument) {
  throw InvalidArgumentError(absl::StrCat(call, ": ", argument, " is undefined; pass a tensor"));
}

void RequireDefined(TensorSpan list, absl::string_view call, absl::string_view argument) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].defined()) RefuseUndefined(call, absl::StrCat(argument, "[", i, "]"));
  }
}

DType ResultType(const Tensor& x, const Tensor& y) {
  const DType a = x.dtype(), b = y.dtype();
  if (a == b) return a;
  if ((x.rank() > 0) == (y.rank() > 0)) return PromoteTypes(a, b);
  const DType dimensioned = x.rank() > 0 ? a : b;
  const DType single = x.rank() > 0 ? b : a;
  if (IsFloatingPoint(dimensioned)) return dimensioned;
  const bool higher_kind = dimensioned == DType::kBool || IsFloatingPoint(single);
  return higher_kind ? PromoteTypes(dimensioned, single) : dimensioned;
}

Tensor Cast(const Tensor& x, DType dtype) {
  CastAttributes attributes;
  attributes.dtype = dtype;
  return Dispatch1(OpId::kCast, absl::MakeConstSpan(&x, 1), {}, attributes);
}

bool Fits(const Scalar& value, DType dtype) {
  if (!IsIntegral(dtype)) return true;
  const Range range = IntegerRange(dtype);
  if (value.kind() == Scalar::Kind::kDouble) {
    // -2^63 and 2^63 are doubles; the largest int64 is not.
    const double whole = std::trunc(value.AsDouble());
    return whole >= static_cast<double>(range.low) &&
           (range.high == std::numeric_limits<int64_t>::max()
                ? whole < 0x1p63
                : whole <= static_cast<double>(range.high));
  }
  return value.AsInt64() >= range.low && value.AsInt64() <= range.high;
}

void RequireFits(const Scalar& value, DType dtype, absl::string_view call) {
  if (Fits(value, dtype)) return;
  const Range range = IntegerRange(dtype);
  Refuse(call, "value ", ToString(value), " does not fit dtype ", DTypeName(dtype), " (", range.low,
         " to ", range.high, "); cast the tensor to a wider dtype with To");
}

std::string ToString(const Scalar& value) {
  switch (value.kind()) {
    case Scalar::Kind::kDouble:
      return absl::StrCat(value.AsDouble());
    case Scalar::Kind::kInt64:
      return absl::StrCat(value.AsInt64());
    case Scalar::Kind::kBool:
      break;
  }
  return value.AsBool() ? "true" : "false";
}

Tensor ScalarTensor(const Scalar& value, DType dtype, Device device) {
  CreateAttributes attributes;
  attributes.dtype = dtype;
  attributes.device = device;
  return Dispatch1(OpId::kFull, {}, {value}, attributes);
}

}  // namespace ops
}  // namespace lockstep
