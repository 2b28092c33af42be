// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/balance.h"

#include <cstddef>

#include "lockstep/strategies/balanced_partition.h"

namespace lockstep::pipeline {

std::vector<int64_t> SplitPoints(absl::Span<const double> costs, int stages) {
  const std::vector<int64_t> counts = BalancedPartition(costs, stages);
  std::vector<int64_t> points;
  int64_t layer = 0;
  for (size_t s = 0; s + 1 < counts.size(); ++s) points.push_back(layer += counts[s]);
  return points;
}

}  // namespace lockstep::pipeline
