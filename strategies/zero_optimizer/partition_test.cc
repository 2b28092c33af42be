// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/zero_optimizer/partition.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::strategies {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PartitionTest, OneBucketIsCutIntoEqualAlignedParts) {
  const std::vector<PartitionedParameter> parameters = {
      {.numel = 100}, {.numel = 1}, {.numel = 0}, {.numel = 35}};
  const auto plan = PlanPartition(parameters, 3, 1 << 20);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_THAT(plan[0].parameters, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(plan[0].offsets, ElementsAre(0, 112, 128, 128));
  EXPECT_EQ(plan[0].part, 64) << "163 elements: 55 a rank, up to 64 bytes";
  const auto pieces = [&](size_t at) {
    std::vector<ElementRange> ranges;
    for (int rank = 0; rank < 3; ++rank) {
      ranges.push_back(PieceOf(plan[0], plan[0].offsets[at], parameters[at].numel, rank));
    }
    return ranges;
  };
  EXPECT_THAT(pieces(0),
              ElementsAre(ElementRange{0, 64}, ElementRange{64, 100}, ElementRange{100, 100}));
  EXPECT_THAT(pieces(1), ElementsAre(ElementRange{0, 0}, ElementRange{0, 1}, ElementRange{1, 1}));
  EXPECT_THAT(pieces(2), ElementsAre(ElementRange{0, 0}, ElementRange{0, 0}, ElementRange{0, 0}));
  EXPECT_THAT(pieces(3), ElementsAre(ElementRange{0, 0}, ElementRange{0, 0}, ElementRange{0, 35}));
}

// Whatever the sizes, the pieces of all ranks are each parameter once, and no part is exceeded.
TEST(PartitionTest, PiecesCoverEachElementOnce) {
  for (const int ranks : {1, 2, 3, 4, 7, 64}) {
    for (const int64_t bucket_bytes : {1, 500, 100000}) {
      std::vector<PartitionedParameter> parameters;
      for (const int64_t numel : {7, 1, 300, 0, 64, 1000, 2})
        parameters.push_back({.numel = numel});
      std::vector<bool> planned(parameters.size(), false);
      for (const PartitionBucket& bucket : PlanPartition(parameters, ranks, bucket_bytes)) {
        std::vector<int64_t> used(static_cast<size_t>(ranks), 0);
        for (size_t i = 0; i < bucket.parameters.size(); ++i) {
          EXPECT_FALSE(planned[bucket.parameters[i]]);
          planned[bucket.parameters[i]] = true;
          const int64_t numel = parameters[bucket.parameters[i]].numel;
          int64_t expected = 0;
          for (int rank = 0; rank < ranks; ++rank) {
            const ElementRange piece = PieceOf(bucket, bucket.offsets[i], numel, rank);
            EXPECT_EQ(piece.begin, expected);
            EXPECT_LE(piece.begin, piece.end);
            expected = piece.end;
            used[static_cast<size_t>(rank)] += piece.size();
          }
          EXPECT_EQ(expected, numel);
        }
        for (const int64_t elements : used) EXPECT_LE(elements, bucket.part);
      }
      EXPECT_THAT(planned, ::testing::Each(true));
    }
  }
}

TEST(PartitionTest, BucketsAreOfOneKindAndInOrderOfTheirFirstParameters) {
  const std::vector<PartitionedParameter> parameters = {{.numel = 10},
                                                        {.numel = 10, .dtype = DType::kFloat64},
                                                        {.numel = 10, .device = Cpu(1)},
                                                        {.numel = 10, .requires_grad = false},
                                                        {.numel = 90},
                                                        {.numel = 5},
                                                        {.numel = 3, .dtype = DType::kFloat64}};
  const auto plan = PlanPartition(parameters, 2, 400);
  ASSERT_EQ(plan.size(), 5u);
  EXPECT_THAT(plan[0].parameters, ElementsAre(0, 4)) << "full at 400 bytes";
  EXPECT_THAT(plan[1].parameters, ElementsAre(1, 6));
  EXPECT_THAT(plan[1].offsets, ElementsAre(0, 16));
  EXPECT_EQ(plan[1].part, 16);
  EXPECT_THAT(plan[2].parameters, ElementsAre(2));
  EXPECT_EQ(plan[2].device, Cpu(1));
  EXPECT_THAT(plan[3].parameters, ElementsAre(3));
  EXPECT_FALSE(plan[3].requires_grad);
  EXPECT_THAT(plan[4].parameters, ElementsAre(5));
  EXPECT_TRUE(PlanPartition({}, 2, 400).empty());
}

TEST(PartitionTest, Refusals) {
  EXPECT_THAT(MessageOf([] { PlanPartition({}, 0, 1); }), HasSubstr("0 ranks"));
  EXPECT_THAT(MessageOf([] { PlanPartition({}, 1, 0); }), HasSubstr("bucket_bytes 0"));
}

}  // namespace
}  // namespace lockstep::strategies
