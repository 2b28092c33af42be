// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/zero_optimizer/partition.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/rounding.h"
#include "lockstep/tensor/memory.h"

namespace lockstep::strategies {
namespace {

struct OpenBucket {
  PartitionBucket bucket;
  int64_t numel = 0;
};

}  // namespace

std::vector<PartitionBucket> PlanPartition(absl::Span<const PartitionedParameter> parameters,
                                           int ranks, int64_t bucket_bytes) {
  if (ranks < 1 || bucket_bytes < 1) {
    throw InvalidArgumentError(absl::StrCat("ZeroOptimizer: ", ranks, " ranks, bucket_bytes ",
                                            bucket_bytes, "; give at least 1 of each"));
  }
  std::vector<OpenBucket> closed, open;  // at most one open for each kind
  for (size_t i = 0; i < parameters.size(); ++i) {
    const PartitionedParameter& parameter = parameters[i];
    auto found = std::find_if(open.begin(), open.end(), [&](const OpenBucket& candidate) {
      return candidate.bucket.dtype == parameter.dtype &&
             candidate.bucket.device == parameter.device &&
             candidate.bucket.requires_grad == parameter.requires_grad;
    });
    if (found == open.end()) {
      found = open.insert(open.end(), OpenBucket());
      found->bucket.dtype = parameter.dtype;
      found->bucket.device = parameter.device;
      found->bucket.requires_grad = parameter.requires_grad;
    }
    const int64_t alignment = kStorageAlignment / ItemSize(parameter.dtype);
    found->bucket.parameters.push_back(i);
    found->bucket.offsets.push_back(RoundUp(found->numel, alignment));
    found->numel = found->bucket.offsets.back() + parameter.numel;
    if (found->numel * ItemSize(parameter.dtype) >= bucket_bytes) {
      closed.push_back(std::move(*found));
      open.erase(found);
    }
  }
  closed.insert(closed.end(), std::make_move_iterator(open.begin()),
                std::make_move_iterator(open.end()));
  std::sort(closed.begin(), closed.end(), [](const OpenBucket& a, const OpenBucket& b) {
    return a.bucket.parameters[0] < b.bucket.parameters[0];
  });
  std::vector<PartitionBucket> plan;
  for (OpenBucket& planned : closed) {
    const int64_t alignment = kStorageAlignment / ItemSize(planned.bucket.dtype);
    planned.bucket.part = RoundUp(CeilDiv(planned.numel, ranks), alignment);
    plan.push_back(std::move(planned.bucket));
  }
  return plan;
}

ElementRange PieceOf(const PartitionBucket& bucket, int64_t offset, int64_t numel, int rank) {
  const int64_t begin = std::clamp<int64_t>(rank * bucket.part - offset, 0, numel);
  const int64_t end = std::clamp<int64_t>((rank + 1) * bucket.part - offset, 0, numel);
  return {begin, end};
}

}  // namespace lockstep::strategies
