// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/bucket_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::strategies {

std::vector<BucketSpec> PlanBuckets(absl::Span<const GradientSpec> gradients,
                                    const BucketPlanOptions& options) {
  if (options.bucket_cap_bytes < 1 || options.first_bucket_bytes < 1) {
    throw InvalidArgumentError(absl::StrCat("DistributedDataParallel: bucket_cap_bytes ",
                                            options.bucket_cap_bytes, ", first_bucket_bytes ",
                                            options.first_bucket_bytes, "; give sizes >= 1"));
  }
  std::vector<BucketSpec> closed;
  std::vector<BucketSpec> open;  // at most one for each dtype and device
  int64_t limit = options.first_bucket_bytes;
  for (int64_t i = static_cast<int64_t>(gradients.size()) - 1; i >= 0; --i) {
    const GradientSpec& gradient = gradients[static_cast<size_t>(i)];
    auto bucket = std::find_if(open.begin(), open.end(), [&](const BucketSpec& b) {
      return b.dtype == gradient.dtype && b.device == gradient.device;
    });
    if (bucket == open.end()) {
      open.emplace_back();
      bucket = open.end() - 1;
      bucket->dtype = gradient.dtype;
      bucket->device = gradient.device;
    }
    bucket->gradients.push_back(i);
    bucket->offsets.push_back(bucket->numel);
    bucket->numel += gradient.numel;
    if (bucket->numel * ItemSize(bucket->dtype) >= limit) {
      closed.push_back(std::move(*bucket));
      open.erase(bucket);
      limit = options.bucket_cap_bytes;
    }
  }
  for (BucketSpec& bucket : open) closed.push_back(std::move(bucket));
  std::sort(closed.begin(), closed.end(), [](const BucketSpec& a, const BucketSpec& b) {
    return a.gradients.front() > b.gradients.front();
  });
  return closed;
}

}  // namespace lockstep::strategies
