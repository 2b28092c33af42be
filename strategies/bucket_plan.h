// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How gradients are packed into buckets: a pure function of the parameters.
#ifndef LOCKSTEP_STRATEGIES_BUCKET_PLAN_H_
#define LOCKSTEP_STRATEGIES_BUCKET_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::strategies {

struct ParameterSpec {
  int64_t numel = 0;
  DType dtype = DType::kFloat32;
  Device device;
};

struct Bucket {
  DType dtype = DType::kFloat32;
  Device device;
  std::vector<int> parameters;   // in the order in which they lie in the bucket
  std::vector<int64_t> offsets;  // elements, of each of `parameters`; multiples of 64 bytes
  int64_t numel = 0;             // with the gaps

  int64_t bytes() const { return numel * ItemSize(dtype); }
};

struct BucketPlan {
  std::vector<Bucket> buckets;          // in the order in which they are reduced
  std::vector<int> bucket_of;           // by parameter
  std::vector<int> position_in_bucket;  // by parameter

  // "bucket 0: float32 on cpu:0, 3 parameters, 1.2 MiB", one a line.
  std::string ToString() const;
};

// Parameters are taken from the last to the first, since backward makes gradients in about that
// order, and put into the open bucket of their dtype and device. A bucket is closed as soon as it
// holds its limit: `first_bucket_bytes` for the first of a dtype and device, `bucket_cap_bytes` for
// later ones. Buckets are ordered by the parameter that completes them. REQUIRES positive limits.
BucketPlan PlanBuckets(const std::vector<ParameterSpec>& parameters, int64_t first_bucket_bytes,
                       int64_t bucket_cap_bytes);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_BUCKET_PLAN_H_
