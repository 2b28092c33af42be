// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/signature.h"

#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::comm {
namespace {

constexpr absl::string_view kNames[] = {
#define LOCKSTEP_OP(name, ...) #name,
#include "lockstep/comm/op_list.inc"
#undef LOCKSTEP_OP
};

// Every column of every row, as text.
struct Row {
  absl::string_view name, inputs, outputs, kind;
  int view_of;
  int mutates;
  absl::string_view amp_cpu, amp_cuda, gradient, cost, doc;
};
constexpr Row kRows[] = {
#define LOCKSTEP_OP(name, inputs, outputs, kind, view_of, mutates, amp_cpu, amp_cuda, gradient, \
                    cost, doc)                                                                  \
  {#name, inputs, outputs, #kind, view_of, mutates, #amp_cpu, #amp_cuda, #gradient, #cost, doc},
#include "lockstep/comm/op_list.inc"
#undef LOCKSTEP_OP
};

TEST(SignatureTest, EveryRowOfTheListIsComplete) {
  std::set<std::string> names;
  for (const Row& row : kRows) {
    EXPECT_TRUE(names.insert(std::string(row.name)).second) << row.name << " appears twice";
    EXPECT_EQ(row.kind, "Collective") << row.name;
    EXPECT_EQ(row.view_of, -1) << row.name;
    EXPECT_TRUE(row.gradient == "Yes" || row.gradient == "No") << row.name;
    EXPECT_GT(row.doc.size(), 10u) << row.name;
  }
  EXPECT_EQ(static_cast<int>(CollectiveId::kCount), static_cast<int>(std::size(kNames)));
  for (size_t i = 0; i < std::size(kNames); ++i) {
    EXPECT_EQ(CollectiveName(static_cast<CollectiveId>(i)), kNames[i]);
  }
}

TEST(SignatureTest, Text) {
  Signature signature;
  EXPECT_EQ(signature.ToString(), "Barrier()");
  signature.op = CollectiveId::kAllReduce;
  signature.dtype = DType::kFloat32;
  signature.count = 5;
  signature.reduces = true;
  signature.reduce_op = ReduceOp::kAverage;
  EXPECT_EQ(signature.ToString(), "AllReduce(float32 x 5, average)");
  signature = {.count = 3, .root = 1, .op = CollectiveId::kBroadcast, .dtype = DType::kInt64};
  EXPECT_EQ(signature.ToString(), "Broadcast(int64 x 3, root 1)");
  signature = {.count = 3, .peer = 2, .op = CollectiveId::kSend, .dtype = DType::kInt64};
  EXPECT_EQ(signature.ToString(), "Send(int64 x 3, to rank 2)");
  signature.op = CollectiveId::kRecv;
  signature.tag = 7;
  EXPECT_EQ(signature.ToString(), "Recv(int64 x 3, from rank 2, tag 7)");
}

TEST(SignatureTest, AnyDifferenceShows) {
  const Signature base = {.count = 3,
                          .root = 1,
                          .op = CollectiveId::kBroadcast,
                          .dtype = DType::kInt64,
                          .reduce_op = ReduceOp::kSum,
                          .reduces = false};
  Signature other = base;
  EXPECT_EQ(base, other);
  other.count = 4;
  EXPECT_NE(base, other);
  other = base;
  other.root = 0;
  EXPECT_NE(base, other);
  other = base;
  other.op = CollectiveId::kAllGather;
  EXPECT_NE(base, other);
  other = base;
  other.dtype = DType::kFloat64;
  EXPECT_NE(base, other);
  other = base;
  other.reduce_op = ReduceOp::kMax;
  EXPECT_NE(base, other);
}

TEST(ReduceOpTest, RefusesWhatIsNotDefined) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    for (int op = 0; op < kReduceOpCount; ++op) {
      const auto reduce_op = static_cast<ReduceOp>(op);
      const bool bitwise = op >= static_cast<int>(ReduceOp::kBitAnd);
      const bool average = reduce_op == ReduceOp::kAverage;
      const bool defined = IsFloatingPoint(dtype) ? !bitwise : !average;
      if (defined) {
        EXPECT_NO_THROW(CheckReduceOp("AllReduce", reduce_op, dtype));
        continue;
      }
      try {
        CheckReduceOp("AllReduce", reduce_op, dtype);
        ADD_FAILURE() << ReduceOpName(reduce_op) << " of " << DTypeName(dtype);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_EQ(error.message().rfind("AllReduce: ", 0), 0u) << error.message();
        EXPECT_NE(error.message().find(std::string(DTypeName(dtype))), std::string::npos);
      }
    }
  }
  EXPECT_THROW(CheckReduceOp("AllReduce", static_cast<ReduceOp>(99), DType::kFloat32), Error);
}

}  // namespace
}  // namespace lockstep::comm
