// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which gradients are reduced together. Pure functions: every rank computes the same plan from the
// same parameters.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_BUCKET_PLAN_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_BUCKET_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::strategies {

// A gradient to be reduced, in the order in which the parameters were registered.
struct GradientSpec {
  int64_t numel = 0;
  DType dtype = DType::kFloat32;
  Device device;
};

struct BucketPlanOptions {
  int64_t bucket_cap_bytes = int64_t{25} << 20;
  // Of the first bucket: small, so that communication starts early in backward.
  int64_t first_bucket_bytes = int64_t{1} << 20;
};

// A contiguous buffer of one dtype on one device.
struct BucketSpec {
  DType dtype = DType::kFloat32;
  Device device;
  std::vector<int64_t> gradients;  // indices into the list of GradientSpec
  std::vector<int64_t> offsets;    // of each, in elements
  int64_t numel = 0;               // of all of them
};

// Backward makes gradients roughly in reverse order of registration, so buckets are filled in that
// order, unless a better one has been seen; a bucket is closed when it has reached its size (a
// gradient is never cut), and gradients of different dtypes or devices go to buckets of their own.
// Buckets are ordered by the time their first gradient is expected. Every gradient is in exactly
// one bucket. Throws InvalidArgument for sizes below 1.
std::vector<BucketSpec> PlanBuckets(absl::Span<const GradientSpec> gradients,
                                    const BucketPlanOptions& options);
// The same for gradients that are expected in `order`: a permutation of their indices, for which
// InvalidArgument is thrown otherwise.
std::vector<BucketSpec> PlanBuckets(absl::Span<const GradientSpec> gradients,
                                    absl::Span<const int64_t> order,
                                    const BucketPlanOptions& options);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_BUCKET_PLAN_H_
