// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/serial_reference.h"

#include <algorithm>
#include <cstdint>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

double Combine(ReduceOp op, DType dtype, double a, double b) {
  const auto ia = static_cast<int64_t>(a);
  const auto ib = static_cast<int64_t>(b);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
    case ReduceOp::kPreMultipliedSum:
      if (dtype == DType::kBool) return static_cast<double>(ia | ib);
      return a + b;
    case ReduceOp::kProduct:
      return dtype == DType::kUInt8 ? static_cast<double>((ia * ib) & 255) : a * b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kBitAnd:
      return static_cast<double>(ia & ib);
    case ReduceOp::kBitOr:
      return static_cast<double>(ia | ib);
    case ReduceOp::kBitXor:
      return static_cast<double>(ia ^ ib);
  }
  return 0;
}

}  // namespace

double Value(DType dtype, int rank, int64_t i) {
  const int64_t mixed = i * 7 + rank * 13 + i / 97;
  if (dtype == DType::kBool) return static_cast<double>(mixed % 3 == 0);
  if (dtype == DType::kUInt8) return static_cast<double>(mixed % 4);
  return static_cast<double>(mixed % 7 - 3);
}

double RoundTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<float>(value);
    case DType::kBFloat16:
      return ToFloat(ToBFloat16(static_cast<float>(value)));
    case DType::kFloat16:
      return ToFloat(ToFloat16(static_cast<float>(value)));
    default:
      return value;
  }
}

double Reduced(ReduceOp op, DType dtype, int size, int64_t i, double factor) {
  const double each = op == ReduceOp::kPreMultipliedSum ? factor : 1;
  double value = Value(dtype, 0, i) * each;
  for (int rank = 1; rank < size; ++rank) {
    value = Combine(op, dtype, value, Value(dtype, rank, i) * each);
  }
  if (op != ReduceOp::kAverage) return RoundTo(dtype, value);
  if (dtype == DType::kFloat64) return value * (1.0 / size);
  return RoundTo(dtype, static_cast<float>(value) * (1.0f / static_cast<float>(size)));
}

bool IsDefined(ReduceOp op, DType dtype) {
  try {
    CheckReduceOp("", op, dtype);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace lockstep::comm
