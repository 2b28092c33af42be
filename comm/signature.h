// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What every rank must agree on before a collective moves data.
//
// All ranks of a group issue the same collectives in the same order. Each rank publishes its
// signature, each rank compares all of them, always; a difference is an error on every rank that
// shows both signatures and both ranks:
//
//   AllReduce: rank 2 of group "world": ranks disagree on collective 7: rank 0 called
//   AllReduce(float32 x 5, sum), rank 1 called AllReduce(float32 x 7, sum)
#ifndef LOCKSTEP_COMM_SIGNATURE_H_
#define LOCKSTEP_COMM_SIGNATURE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::comm {

enum class CollectiveId : uint8_t {
#define LOCKSTEP_OP(name, ...) k##name,
#include "lockstep/comm/op_list.inc"
#undef LOCKSTEP_OP
  kCount
};
// "AllReduce".
absl::string_view CollectiveName(CollectiveId id);

// How values of several ranks become one. Sums, averages and products of float16 and bfloat16
// accumulate in float32 and are rounded once. All are evaluated in rank order, whatever the size
// and the path, so that the result is the same bits on every rank and in every run. In a gloo group
// whose ranks share hosts the order is that of the ranks of each host and then that of the hosts,
// and 16-bit results are rounded once in each of the two (averages and pre-multiplied sums: once).
enum class ReduceOp : uint8_t {
  kSum = 0,      // integers wrap; bool: or
  kAverage = 1,  // the sum times 1/W; refused for integers and bool
  kProduct = 2,  // integers wrap; bool: and
  kMin = 3,      // NaN wins
  kMax = 4,      // NaN wins
  kBitAnd = 5,   // integers and bool only, as the next two
  kBitOr = 6,
  kBitXor = 7,
  // The sum of what each rank has times a factor, the same on all ranks: floating-point only. The
  // products are rounded as they accumulate (float32 for 16-bit types), so that a factor of 1/W
  // keeps a sum of 16-bit values that is too large for them within range.
  kPreMultipliedSum = 8,
};
inline constexpr int kReduceOpCount = 9;
// "sum", "average", ...
absl::string_view ReduceOpName(ReduceOp op);
// Throws InvalidArgument, prefixed by `call`, when `op` is not defined for `dtype`, or `factor` is
// not finite, or given (not 1) to another reduction than kPreMultipliedSum.
void CheckReduceOp(absl::string_view call, ReduceOp op, DType dtype, double factor = 1);

// Fixed layout: written into memory that processes share.
struct Signature {
  // Elements: of the tensor, or of one rank's part (AllGather, ReduceScatter, Gather, Scatter,
  // AllToAll). Uneven: of all parts together; 0 for AllToAll.
  int64_t count = 0;
  int64_t tag = 0;      // the caller's, compared
  double factor = 1;    // of kPreMultipliedSum
  uint64_t list = 0;    // of tensors issued as one: a hash of their counts
  int32_t tensors = 0;  // and how many
  int32_t root = -1;    // -1: has none
  int32_t peer = -1;    // of Send and Recv
  CollectiveId op = CollectiveId::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp reduce_op = ReduceOp::kSum;
  bool reduces = false;  // whether reduce_op means anything
  bool uneven = false;   // parts of differing counts, which are compared too

  // "AllReduce(float32 x 5, sum)", "Broadcast(int64 x 3, root 1)", "Barrier()",
  // "Send(float32 x 5, to rank 1, tag 7)".
  // With the counts of an uneven call: "AllGather(float32 x [3, 0, 5])".
  std::string ToString(absl::Span<const int64_t> counts = {}) const;

  friend bool operator==(const Signature&, const Signature&) = default;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_SIGNATURE_H_
