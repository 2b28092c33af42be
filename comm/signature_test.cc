// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/signature.h"

#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

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

// What is allowed, dtype by reduction.
struct DTypeRow {
  DType dtype;
  // sum, average, product, min, max, and, or, xor, pre-multiplied sum
  const char* allowed;
};
constexpr DTypeRow kAllowed[] = {
    {DType::kFloat32, "sapmM   f"}, {DType::kBFloat16, "sapmM   f"}, {DType::kFloat16, "sapmM   f"},
    {DType::kFloat64, "sapmM   f"}, {DType::kInt64, "s pmM&|^ "},    {DType::kInt32, "s pmM&|^ "},
    {DType::kUInt8, "s pmM&|^ "},   {DType::kBool, "s pmM&|^ "},
};

TEST(ReduceOpTest, TableOfWhatIsAllowed) {
  ASSERT_EQ(std::size(kAllowed), static_cast<size_t>(kDTypeCount));
  for (const DTypeRow& row : kAllowed) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      const auto reduce_op = static_cast<ReduceOp>(op);
      if (row.allowed[op] != ' ') {
        EXPECT_NO_THROW(CheckReduceOp("AllReduce", reduce_op, row.dtype));
        continue;
      }
      try {
        CheckReduceOp("AllReduce", reduce_op, row.dtype);
        ADD_FAILURE() << ReduceOpName(reduce_op) << " of " << DTypeName(row.dtype);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_EQ(error.message().rfind("AllReduce: ", 0), 0u) << error.message();
        EXPECT_NE(error.message().find(std::string(DTypeName(row.dtype))), std::string::npos);
        const char* remedy = IsFloatingPoint(row.dtype) ? "use an integer dtype" : "cast to a";
        EXPECT_NE(error.message().find(remedy), std::string::npos) << error.message();
      }
    }
  }
  EXPECT_THROW(CheckReduceOp("AllReduce", static_cast<ReduceOp>(99), DType::kFloat32), Error);
}

TEST(ReduceOpTest, FactorsBelongToPreMultipliedSums) {
  const DType dtype = DType::kFloat16;
  EXPECT_NO_THROW(CheckReduceOp("AllReduce", ReduceOp::kPreMultipliedSum, dtype, 0.5));
  EXPECT_THROW(CheckReduceOp("AllReduce", ReduceOp::kSum, dtype, 0.5), Error);
  EXPECT_THROW(CheckReduceOp("AllReduce", ReduceOp::kPreMultipliedSum, dtype,
                             std::numeric_limits<double>::infinity()),
               Error);
}

TEST(SignatureTest, UnevenText) {
  Signature signature = {.count = 8, .op = CollectiveId::kAllGather, .dtype = DType::kFloat32};
  signature.uneven = true;
  EXPECT_EQ(signature.ToString({{3, 0, 5}}), "AllGather(float32 x [3, 0, 5])");
  EXPECT_EQ(signature.ToString(), "AllGather(float32 x uneven parts)");
  signature.op = CollectiveId::kAllToAll;
  EXPECT_EQ(signature.ToString({{1, 2, 3, 4}}), "AllToAll(float32 x [1, 2], receives [3, 4])");
  signature.op = CollectiveId::kReduceScatter;
  signature.reduces = true;
  signature.reduce_op = ReduceOp::kPreMultipliedSum;
  signature.factor = 0.5;
  EXPECT_EQ(signature.ToString(std::vector<int64_t>(20, 1)),
            "ReduceScatter(float32 x [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ...], "
            "pre-multiplied sum by 0.5)");
}

}  // namespace
}  // namespace lockstep::comm
