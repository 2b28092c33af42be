// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/bucket_plan.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::strategies {
namespace {

std::vector<GradientSpec> Floats(const std::vector<int64_t>& sizes) {
  std::vector<GradientSpec> gradients;
  for (int64_t size : sizes) gradients.push_back({size, DType::kFloat32, Cpu()});
  return gradients;
}

std::vector<std::vector<int64_t>> Members(const std::vector<BucketSpec>& plan) {
  std::vector<std::vector<int64_t>> members;
  for (const BucketSpec& bucket : plan) members.push_back(bucket.gradients);
  return members;
}

TEST(PlanBucketsTest, FillsFromTheLastParameterAndStartsSmall) {
  const auto plan =
      PlanBuckets(Floats({10, 10, 10, 10, 10}), {.bucket_cap_bytes = 80, .first_bucket_bytes = 40});
  EXPECT_EQ(Members(plan), (std::vector<std::vector<int64_t>>{{4}, {3, 2}, {1, 0}}));
  EXPECT_EQ(plan[1].offsets, (std::vector<int64_t>{0, 10}));
  EXPECT_EQ(plan[1].numel, 20);
}

TEST(PlanBucketsTest, NeverCutsAGradientAndClosesWhenFull) {
  const auto plan =
      PlanBuckets(Floats({1, 1000, 1, 3}), {.bucket_cap_bytes = 8, .first_bucket_bytes = 1});
  EXPECT_EQ(Members(plan), (std::vector<std::vector<int64_t>>{{3}, {2, 1}, {0}}));
}

TEST(PlanBucketsTest, DTypesAndDevicesHaveBucketsOfTheirOwnInOrderOfFirstUse) {
  std::vector<GradientSpec> gradients = Floats({5, 5, 5, 5});
  gradients[1].dtype = DType::kBFloat16;
  gradients[2].device = Cpu(1);
  const auto plan = PlanBuckets(gradients, {});
  EXPECT_EQ(Members(plan), (std::vector<std::vector<int64_t>>{{3, 0}, {2}, {1}}));
  EXPECT_EQ(plan[2].dtype, DType::kBFloat16);
  EXPECT_EQ(plan[1].device, Cpu(1));
}

TEST(PlanBucketsTest, EveryGradientIsInExactlyOneBucketWhateverTheSizes) {
  const std::vector<GradientSpec> gradients = Floats({0, 7, 1, 100, 3, 0, 64, 9, 5000, 2});
  for (int64_t cap : {1, 4, 30, 400, 1 << 20}) {
    std::vector<int> seen(gradients.size(), 0);
    for (const BucketSpec& bucket : PlanBuckets(gradients, {cap, cap})) {
      int64_t offset = 0;
      for (size_t i = 0; i < bucket.gradients.size(); ++i) {
        ++seen[static_cast<size_t>(bucket.gradients[i])];
        EXPECT_EQ(bucket.offsets[i], offset);
        offset += gradients[static_cast<size_t>(bucket.gradients[i])].numel;
      }
      EXPECT_EQ(bucket.numel, offset);
    }
    EXPECT_EQ(seen, std::vector<int>(gradients.size(), 1)) << cap;
  }
  EXPECT_TRUE(PlanBuckets({}, {}).empty());
}

TEST(PlanBucketsTest, FollowsAnOrderThatWasSeen) {
  const std::vector<GradientSpec> gradients = Floats({10, 10, 10, 10});
  const auto plan =
      PlanBuckets(gradients, {1, 3, 0, 2}, {.bucket_cap_bytes = 80, .first_bucket_bytes = 40});
  EXPECT_EQ(Members(plan), (std::vector<std::vector<int64_t>>{{1}, {3, 0}, {2}}));
  for (const std::vector<int64_t>& order : {std::vector<int64_t>{0, 1, 2},
                                            {0, 1, 2, 2},
                                            {0, 1, 2, 4},
                                            {-1, 0, 1, 2},
                                            {0, 1, 2, 3, 3}}) {
    const Error error = ErrorOf([&] { PlanBuckets(gradients, order, {}); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(error.message().find("PlanBuckets: the order"), std::string::npos);
  }
}

TEST(PlanBucketsTest, BadSizesAreRefused) {
  for (const BucketPlanOptions& options :
       {BucketPlanOptions{0, 1}, BucketPlanOptions{1, 0}, BucketPlanOptions{-5, 1}}) {
    try {
      PlanBuckets({}, options);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace lockstep::strategies
