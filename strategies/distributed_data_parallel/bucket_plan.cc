// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/bucket_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::strategies {

namespace {

// Throws unless `order` has each of 0 .. count - 1 once.
void CheckPermutation(absl::Span<const int64_t> order, size_t count) {
  std::vector<bool> seen(count, false);
  for (const int64_t index : order) {
    if (index < 0 || index >= static_cast<int64_t>(count) || seen[static_cast<size_t>(index)]) {
      throw InvalidArgumentError(absl::StrCat("PlanBuckets: the order of ", count,
                                              " gradients names ", index,
                                              ", which is twice in it or none of them"));
    }
    seen[static_cast<size_t>(index)] = true;
  }
  if (order.size() != count) {
    throw InvalidArgumentError(absl::StrCat("PlanBuckets: the order has ", order.size(), " of ",
                                            count, " gradients; name each"));
  }
}

// A bucket's place among the others: when its first gradient is expected.
struct PlannedBucket {
  size_t first = 0;
  BucketSpec spec;
};

}  // namespace

std::vector<BucketSpec> PlanBuckets(absl::Span<const GradientSpec> gradients,
                                    const BucketPlanOptions& options) {
  std::vector<int64_t> reversed(gradients.size());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return PlanBuckets(gradients, reversed, options);
}

std::vector<BucketSpec> PlanBuckets(absl::Span<const GradientSpec> gradients,
                                    absl::Span<const int64_t> order,
                                    const BucketPlanOptions& options) {
  if (options.bucket_cap_bytes < 1 || options.first_bucket_bytes < 1) {
    throw InvalidArgumentError(absl::StrCat("DistributedDataParallel: bucket_cap_bytes ",
                                            options.bucket_cap_bytes, ", first_bucket_bytes ",
                                            options.first_bucket_bytes, "; give sizes >= 1"));
  }
  CheckPermutation(order, gradients.size());
  std::vector<PlannedBucket> closed;
  std::vector<PlannedBucket> open;  // at most one for each dtype and device
  int64_t limit = options.first_bucket_bytes;
  for (size_t at = 0; at < order.size(); ++at) {
    const GradientSpec& gradient = gradients[static_cast<size_t>(order[at])];
    auto planned = std::find_if(open.begin(), open.end(), [&](const PlannedBucket& b) {
      return b.spec.dtype == gradient.dtype && b.spec.device == gradient.device;
    });
    if (planned == open.end()) {
      planned = open.insert(open.end(), {at, BucketSpec()});
      planned->spec.dtype = gradient.dtype;
      planned->spec.device = gradient.device;
    }
    BucketSpec& bucket = planned->spec;
    bucket.gradients.push_back(order[at]);
    bucket.offsets.push_back(bucket.numel);
    bucket.numel += gradient.numel;
    if (bucket.numel * ItemSize(bucket.dtype) >= limit) {
      closed.push_back(std::move(*planned));
      open.erase(planned);
      limit = options.bucket_cap_bytes;
    }
  }
  for (PlannedBucket& planned : open) closed.push_back(std::move(planned));
  std::sort(closed.begin(), closed.end(),
            [](const PlannedBucket& a, const PlannedBucket& b) { return a.first < b.first; });
  std::vector<BucketSpec> plan;
  for (PlannedBucket& planned : closed) plan.push_back(std::move(planned.spec));
  return plan;
}

}  // namespace lockstep::strategies
