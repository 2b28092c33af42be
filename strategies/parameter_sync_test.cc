// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/parameter_sync.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/lost_parameter.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using ::testing::HasSubstr;
using testing_util::ValuesOf;
using Values = std::vector<double>;

// The error of both ranks, of which rank 1 gives `other` and rank 0 what it should.
void ExpectRefused(const NamedTensors& other, const std::vector<std::string>& settings,
                   const std::string& part) {
  ValuesOf(2, [&](int rank, auto world) {
    const NamedTensors tensors =
        rank == 1 ? other : NamedTensors{{"a", Full({2}, 1.0)}, {"b", Full({3}, 1.0)}};
    const Error error = ErrorOf([&] {
      VerifySameTensors("Strategy", tensors, *world,
                        rank == 1 ? settings : std::vector<std::string>{"x=1", "y=2"});
    });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("Strategy: "));
    EXPECT_THAT(error.message(), HasSubstr(part));
    return Values();
  });
}

TEST(VerifySameTensorsTest, NamesWhatDiffersOnEveryRank) {
  const std::vector<std::string> same = {"x=1", "y=2"};
  const Tensor a = Full({2}, 1.0), b = Full({3}, 1.0);
  ExpectRefused({{"a", a}}, same, "number 1 is 'b float32[3] without gradient' on rank 0 and none");
  ExpectRefused({{"a", a}, {"c", b}}, same, "'c float32[3] without gradient' on rank 1");
  ExpectRefused({{"a", a}, {"b", Full({4}, 1.0)}}, same, "'b float32[4] without gradient'");
  ExpectRefused({{"a", a}, {"b", Full({3}, 1.0, {.dtype = DType::kFloat64})}}, same, "float64[3]");
  ExpectRefused({{"a", a}, {"b", autograd::SetRequiresGrad(Full({3}, 1.0), true)}}, same,
                "'b float32[3]' on rank 1");
  ExpectRefused({{"a", a}, {"b", b}}, {"x=1", "y=3"}, "'y=2' on rank 0 and 'y=3' on rank 1");
  ExpectRefused({{"a", a}, {"b", b}}, {"x=1"}, "'y=2' on rank 0 and none on rank 1");
  const Tensor lost = Full({3}, 1.0);
  LoseParameter(lost, {3}, {}, "gone");
  ExpectRefused({{"a", a}, {"b", lost}}, same, "whose elements are lost' on rank 1");
}

TEST(VerifySameTensorsTest, TheSameAreFineAndValuesMayDiffer) {
  ValuesOf(2, [](int rank, auto world) {
    VerifySameTensors("Strategy", {{"a", Full({2}, rank)}}, *world, {"x=1"});
    VerifySameTensors("Strategy", {}, *world);
    return Values();
  });
}

TEST(VerifySameTensorsTest, LostEverywhereIsAnErrorToo) {
  ValuesOf(2, [](int, auto world) {
    const Tensor lost = Full({3}, 1.0);
    LoseParameter(lost, {3}, {}, "its ranks are gone");
    const Error error = ErrorOf([&] { VerifySameTensors("Strategy", {{"a", lost}}, *world); });
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), HasSubstr("its ranks are gone"));
    return Values();
  });
}

TEST(BroadcastTest, EveryRankHasTheRootsValuesAndOrder) {
  ValuesOf(3, [](int rank, auto world) {
    const NamedTensors tensors = {{"a", Full({2}, rank)},
                                  {"b", Full({1}, 10 + rank, {.dtype = DType::kInt64})}};
    BroadcastTensors(tensors, *world, /*root=*/1);
    const std::vector<int64_t> order = BroadcastIndices({rank, rank + 1}, *world);
    EXPECT_EQ(order, (std::vector<int64_t>{0, 1}));
    return Values{tensors.At("a").template ToVector<double>()[1],
                  tensors.At("b").template Item<double>()};
  });
}

}  // namespace
}  // namespace lockstep::strategies
