// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which rank updates which elements. Pure functions: every rank computes the same partition from
// the same parameters.
#ifndef LOCKSTEP_STRATEGIES_ZERO_OPTIMIZER_PARTITION_H_
#define LOCKSTEP_STRATEGIES_ZERO_OPTIMIZER_PARTITION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::strategies {

// A parameter, in the order in which forward needs them.
struct PartitionedParameter {
  int64_t numel = 0;
  DType dtype = DType::kFloat32;
  Device device = {};
  bool requires_grad = true;
};

// Contiguous memory of one dtype on one device: parameters that all require gradients, or none. It
// is cut into one part a rank, all of equal size.
struct PartitionBucket {
  DType dtype = DType::kFloat32;
  Device device = {};
  bool requires_grad = true;
  std::vector<size_t> parameters;  // indices into the list of PartitionedParameter
  std::vector<int64_t> offsets;    // of each, in elements: multiples of kStorageAlignment bytes
  int64_t part = 0;                // elements of each rank, of which the last ones may be padding
};

// A bucket is closed when it has reached `bucket_bytes`; a parameter lies in one bucket, and may be
// cut between ranks. Buckets are in the order of their first parameters. Throws InvalidArgument for
// ranks or bytes below 1.
std::vector<PartitionBucket> PlanPartition(absl::Span<const PartitionedParameter> parameters,
                                           int ranks, int64_t bucket_bytes);

// Elements [begin, end) of a parameter.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// Those of the parameter at `offset` of a bucket that lie in the part of `rank`; an empty range has
// begin == end.
ElementRange PieceOf(const PartitionBucket& bucket, int64_t offset, int64_t numel, int rank);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_ZERO_OPTIMIZER_PARTITION_H_
