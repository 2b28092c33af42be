// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/bucket_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lockstep::strategies {
namespace {

constexpr int64_t kAlignmentBytes = 64;

void Append(Bucket& bucket, int parameter, const ParameterSpec& spec) {
  const int64_t per_line = kAlignmentBytes / ItemSize(spec.dtype);
  const int64_t offset = (bucket.numel + per_line - 1) / per_line * per_line;
  bucket.parameters.push_back(parameter);
  bucket.offsets.push_back(offset);
  bucket.numel = offset + spec.numel;
}

}  // namespace

std::string BucketPlan::ToString() const {
  std::string text;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& bucket = buckets[i];
    absl::StrAppend(
        &text, "bucket ", i, ": ", DTypeName(bucket.dtype), " on ",
        lockstep::ToString(bucket.device), ", ", bucket.parameters.size(), " parameters, ",
        absl::StrFormat("%.3g MiB", static_cast<double>(bucket.bytes()) / (1 << 20)), "\n");
  }
  return text;
}

BucketPlan PlanBuckets(const std::vector<ParameterSpec>& parameters, int64_t first_bucket_bytes,
                       int64_t bucket_cap_bytes) {
  struct Open {
    Bucket bucket;
    bool is_first = true;
  };
  std::map<std::pair<int, int>, Open> open;  // by dtype and device
  BucketPlan plan;
  for (int p = static_cast<int>(parameters.size()) - 1; p >= 0; --p) {
    const ParameterSpec& spec = parameters[static_cast<size_t>(p)];
    Open& group = open[{static_cast<int>(spec.dtype), spec.device.ordinal()}];
    group.bucket.dtype = spec.dtype;
    group.bucket.device = spec.device;
    Append(group.bucket, p, spec);
    const int64_t limit = group.is_first ? first_bucket_bytes : bucket_cap_bytes;
    if (group.bucket.bytes() < limit) continue;
    plan.buckets.push_back(std::exchange(group.bucket, {}));
    group.is_first = false;
  }
  for (auto& [key, group] : open) {
    if (!group.bucket.parameters.empty()) plan.buckets.push_back(std::move(group.bucket));
  }
  // The parameter with the lowest number is the last of its bucket to be ready.
  std::sort(plan.buckets.begin(), plan.buckets.end(), [](const Bucket& a, const Bucket& b) {
    return a.parameters.back() > b.parameters.back();
  });
  plan.bucket_of.resize(parameters.size());
  plan.position_in_bucket.resize(parameters.size());
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    const std::vector<int>& members = plan.buckets[b].parameters;
    for (size_t i = 0; i < members.size(); ++i) {
      plan.bucket_of[static_cast<size_t>(members[i])] = static_cast<int>(b);
      plan.position_in_bucket[static_cast<size_t>(members[i])] = static_cast<int>(i);
    }
  }
  return plan;
}

}  // namespace lockstep::strategies
