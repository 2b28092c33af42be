// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/signature.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {

absl::string_view CollectiveName(CollectiveId id) {
  switch (id) {
#define LOCKSTEP_OP(name, ...) \
  case CollectiveId::k##name:  \
    return #name;
#include "lockstep/comm/op_list.inc"
#undef LOCKSTEP_OP
    case CollectiveId::kCount:
      break;
  }
  return "unknown collective";
}

absl::string_view ReduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kBitAnd:
      return "bitwise and";
    case ReduceOp::kBitOr:
      return "bitwise or";
    case ReduceOp::kBitXor:
      return "bitwise xor";
  }
  return "unknown reduction";
}

void CheckReduceOp(absl::string_view call, ReduceOp op, DType dtype) {
  if (static_cast<int>(op) >= kReduceOpCount) {
    throw InvalidArgumentError(
        absl::StrCat(call, ": reduction number ", static_cast<int>(op), " does not exist"));
  }
  if (op == ReduceOp::kAverage && !IsFloatingPoint(dtype)) {
    throw InvalidArgumentError(absl::StrCat(
        call, ": the average of ", DTypeName(dtype),
        " values is not a whole number: reduce the sum, or cast to a floating-point dtype first"));
  }
  const bool bitwise = op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
  if (bitwise && IsFloatingPoint(dtype)) {
    throw InvalidArgumentError(absl::StrCat(call, ": ", ReduceOpName(op), " is not defined for ",
                                            DTypeName(dtype), ": use an integer dtype or bool"));
  }
}

std::string Signature::ToString() const {
  std::string text = absl::StrCat(CollectiveName(op), "(");
  if (op != CollectiveId::kBarrier) absl::StrAppend(&text, DTypeName(dtype), " x ", count);
  if (reduces) absl::StrAppend(&text, ", ", ReduceOpName(reduce_op));
  if (root >= 0) absl::StrAppend(&text, ", root ", root);
  if (peer >= 0) {
    absl::StrAppend(&text, op == CollectiveId::kSend ? ", to rank " : ", from rank ", peer);
  }
  if (tag != 0) absl::StrAppend(&text, ", tag ", tag);
  return absl::StrCat(text, ")");
}

}  // namespace lockstep::comm
