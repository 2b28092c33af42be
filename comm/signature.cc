// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/signature.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
    case ReduceOp::kPreMultipliedSum:
      return "pre-multiplied sum";
  }
  return "unknown reduction";
}

void CheckReduceOp(absl::string_view call, ReduceOp op, DType dtype, double factor) {
  if (static_cast<int>(op) >= kReduceOpCount) {
    throw InvalidArgumentError(
        absl::StrCat(call, ": reduction number ", static_cast<int>(op), " does not exist"));
  }
  if (op == ReduceOp::kAverage && !IsFloatingPoint(dtype)) {
    throw InvalidArgumentError(absl::StrCat(
        call, ": the average of ", DTypeName(dtype),
        " values is not a whole number: reduce the sum, or cast to a floating-point dtype first"));
  }
  if (op == ReduceOp::kPreMultipliedSum && !IsFloatingPoint(dtype)) {
    throw InvalidArgumentError(absl::StrCat(
        call, ": a pre-multiplied sum of ", DTypeName(dtype),
        " values is not a whole number: reduce the sum, or cast to a floating-point dtype first"));
  }
  if (!std::isfinite(factor) || (factor != 1 && op != ReduceOp::kPreMultipliedSum)) {
    throw InvalidArgumentError(absl::StrCat(call, ": a factor of ", factor, " for the ",
                                            ReduceOpName(op),
                                            ": pre-multiplied sums take one, which is finite"));
  }
  const bool bitwise = op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
  if (bitwise && IsFloatingPoint(dtype)) {
    throw InvalidArgumentError(absl::StrCat(call, ": ", ReduceOpName(op), " is not defined for ",
                                            DTypeName(dtype), ": use an integer dtype or bool"));
  }
}

namespace {

// "[3, 0, 5]".
std::string CountsText(absl::Span<const int64_t> counts) {
  constexpr size_t kShown = 16;
  if (counts.size() <= kShown) return absl::StrCat("[", absl::StrJoin(counts, ", "), "]");
  return absl::StrCat("[", absl::StrJoin(counts.subspan(0, kShown), ", "), ", ...]");
}

}  // namespace

std::string Signature::ToString(absl::Span<const int64_t> counts) const {
  std::string text = absl::StrCat(CollectiveName(op), "(");
  if (op != CollectiveId::kBarrier) absl::StrAppend(&text, DTypeName(dtype), " x ");
  if (!uneven) {
    if (op != CollectiveId::kBarrier) absl::StrAppend(&text, count);
  } else if (op == CollectiveId::kAllToAll && !counts.empty()) {
    const size_t half = counts.size() / 2;
    absl::StrAppend(&text, CountsText(counts.subspan(0, half)), ", receives ",
                    CountsText(counts.subspan(half)));
  } else {
    absl::StrAppend(&text, counts.empty() ? "uneven parts" : CountsText(counts));
  }
  if (tensors > 0) {
    absl::StrAppend(&text, " in ", tensors, " tensors, list ", absl::Hex(list, absl::kZeroPad16));
  }
  if (reduces) absl::StrAppend(&text, ", ", ReduceOpName(reduce_op));
  if (factor != 1) absl::StrAppend(&text, " by ", factor);
  if (root >= 0) absl::StrAppend(&text, ", root ", root);
  if (peer >= 0) {
    absl::StrAppend(&text, op == CollectiveId::kSend ? ", to rank " : ", from rank ", peer);
  }
  if (tag != 0) absl::StrAppend(&text, ", tag ", tag);
  return absl::StrCat(text, ")");
}

}  // namespace lockstep::comm
