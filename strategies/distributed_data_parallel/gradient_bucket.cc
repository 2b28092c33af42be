// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/gradient_bucket.h"

#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {

GradientBucket::GradientBucket(int64_t index, int64_t count, const BucketSpec& spec,
                               const NamedTensors& parameters, comm::Communicator& group)
    : index_(index), is_last_(index == count - 1) {
  const DeviceScope device(spec.device);
  const int64_t numel = spec.numel + 1;
  const RefPtr<Storage> storage =
      group.Allocate(numel * ItemSize(spec.dtype), MemoryCategory::kGradient);
  buffer_with_report_ = FromStorage(storage, {numel}, spec.dtype);
  buffer_ = FromStorage(storage, {spec.numel}, spec.dtype);
  report_ = FromStorage(storage, {1}, spec.dtype, spec.numel);
  for (size_t i = 0; i < spec.gradients.size(); ++i) {
    const auto& [name, parameter] = parameters[static_cast<size_t>(spec.gradients[i])];
    gradients_.push_back(FromStorage(storage, parameter.shape(), spec.dtype, spec.offsets[i]));
    names_.push_back(name);
  }
}

bool IsSamePlace(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.offset() == b.offset() && a.shape() == b.shape();
}

Tensor AliasOf(const Tensor& place) {
  return FromStorage(place.storage(), place.shape(), place.dtype(), place.offset());
}

}  // namespace lockstep::strategies
