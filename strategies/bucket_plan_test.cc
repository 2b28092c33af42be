// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/bucket_plan.h"

#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::strategies {
namespace {

using Indices = std::vector<int>;

std::vector<Indices> Members(const BucketPlan& plan) {
  std::vector<Indices> members;
  for (const Bucket& bucket : plan.buckets) members.push_back(bucket.parameters);
  return members;
}

std::vector<ParameterSpec> Floats(const std::vector<int64_t>& counts) {
  std::vector<ParameterSpec> specs;
  for (const int64_t count : counts) specs.push_back({count, DType::kFloat32, Cpu()});
  return specs;
}

TEST(BucketPlanTest, PacksInReverseAndClosesAtTheLimit) {
  // 100 floats are 400 bytes (448 with the gap before the next one).
  const BucketPlan plan = PlanBuckets(Floats({100, 100, 100, 100, 100}), 1, 800);
  EXPECT_EQ(Members(plan), (std::vector<Indices>{{4}, {3, 2}, {1, 0}}));
  EXPECT_EQ(plan.bucket_of, (Indices{2, 2, 1, 1, 0}));
  EXPECT_EQ(plan.position_in_bucket, (Indices{1, 0, 1, 0, 0}));
}

TEST(BucketPlanTest, FirstBucketHasItsOwnLimit) {
  EXPECT_EQ(Members(PlanBuckets(Floats({8, 8, 8, 8}), 33, 1000)),
            (std::vector<Indices>{{3, 2}, {1, 0}}));
}

TEST(BucketPlanTest, OffsetsAreAlignedAndDoNotOverlap) {
  const BucketPlan plan = PlanBuckets(Floats({3, 17, 1, 0, 16}), 1 << 20, 1 << 20);
  ASSERT_EQ(plan.buckets.size(), 1u);
  const Bucket& bucket = plan.buckets[0];
  EXPECT_EQ(bucket.parameters, (Indices{4, 3, 2, 1, 0}));
  EXPECT_EQ(bucket.offsets, (std::vector<int64_t>{0, 16, 16, 32, 64}));
  EXPECT_EQ(bucket.numel, 67);
  EXPECT_EQ(bucket.bytes(), 268);
}

TEST(BucketPlanTest, BucketsAreHomogeneous) {
  std::vector<ParameterSpec> specs = Floats({4, 4, 4, 4, 4, 4});
  specs[1].dtype = specs[4].dtype = DType::kBFloat16;
  specs[2].device = specs[5].device = Cpu(1);
  const BucketPlan plan = PlanBuckets(specs, 1 << 20, 1 << 20);
  EXPECT_EQ(Members(plan), (std::vector<Indices>{{5, 2}, {4, 1}, {3, 0}}));
  EXPECT_EQ(plan.buckets[0].device, Cpu(1));
  EXPECT_EQ(plan.buckets[1].dtype, DType::kBFloat16);
}

TEST(BucketPlanTest, AParameterBeyondTheLimitHasABucketOfItsOwn) {
  EXPECT_EQ(Members(PlanBuckets(Floats({4, 5000, 4}), 16, 1000)),
            (std::vector<Indices>{{2}, {1}, {0}}));
  EXPECT_EQ(Members(PlanBuckets({}, 1, 1)), std::vector<Indices>{});
}

TEST(BucketPlanTest, Text) {
  EXPECT_EQ(PlanBuckets(Floats({1 << 18}), 1, 1).ToString(),
            "bucket 0: float32 on cpu:0, 1 parameters, 1 MiB\n");
}

}  // namespace
}  // namespace lockstep::strategies
