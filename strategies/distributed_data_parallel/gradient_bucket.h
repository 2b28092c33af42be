// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GradientBucket: gradients of one dtype on one device, one after the other in memory that peers
// reach without a copy.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_GRADIENT_BUCKET_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_GRADIENT_BUCKET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/strategies/distributed_data_parallel/bucket_plan.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// As thread-safe as the tensors in it.
class GradientBucket {
 public:
  // Bucket `index` of `count`. Its memory is `group`'s and counts as MemoryCategory::kGradient.
  GradientBucket(int64_t index, int64_t count, const BucketSpec& spec,
                 const NamedTensors& parameters, comm::Communicator& group);

  int64_t index() const { return index_; }
  bool is_last() const { return is_last_; }

  // All gradients, [numel].
  const Tensor& buffer() const { return buffer_; }
  // Each gradient: views of the buffer, shaped as the parameters.
  const std::vector<Tensor>& gradients() const { return gradients_; }
  // Of the parameters.
  const std::vector<std::string>& names() const { return names_; }

  // The buffer and one element behind it, which the reducer sends along.
  const Tensor& buffer_with_report() const { return buffer_with_report_; }
  const Tensor& report() const { return report_; }

 private:
  int64_t index_;
  bool is_last_;
  Tensor buffer_;
  Tensor buffer_with_report_;
  Tensor report_;
  std::vector<Tensor> gradients_;
  std::vector<std::string> names_;
};

// Whether the two show the same elements: a gradient may be a tensor of its own over its place in a
// bucket (which stays in the bucket when Module::To() moves the gradient).
bool IsSamePlace(const Tensor& a, const Tensor& b);
// Another tensor over the elements of `place`.
Tensor AliasOf(const Tensor& place);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_GRADIENT_BUCKET_H_
