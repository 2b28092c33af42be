// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Cuts a row of blocks into contiguous parts of about the same cost: the layers of a model into the
// devices of model parallelism or the stages of a pipeline.
//
//   BalancedPartition({1, 1, 1, 1, 4}, 2);   // {4, 1}: costs 4 and 4
#ifndef LOCKSTEP_STRATEGIES_BALANCED_PARTITION_H_
#define LOCKSTEP_STRATEGIES_BALANCED_PARTITION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lockstep {

// How many blocks each part has, in order: `parts` counts, none of them 0, whose sum is
// costs.size(). The costliest part is as cheap as it can be; among such partitions the sum of the
// squares of the parts' costs is least, so that the others are even too, and where that is equal
// earlier parts have more blocks. Costs within 1e-9 of each other are equal, so that a sum's
// rounding decides nothing; if all are 0, blocks count alike.
//
// `costs` are any unit (seconds, bytes, 1 for counting). Takes time in costs.size()^2 * parts.
// Throws InvalidArgument with the numbers unless 1 <= parts <= costs.size() and all costs are
// finite and not negative.
//
// The linear partition problem (Skiena, The Algorithm Design Manual, 10.7), as torchgpipe's
// balance_by_time and GPipe's partitioner (arXiv 1811.06965, 2.2) pose it.
std::vector<int64_t> BalancedPartition(absl::Span<const double> costs, int parts);

}  // namespace lockstep

#endif  // LOCKSTEP_STRATEGIES_BALANCED_PARTITION_H_
