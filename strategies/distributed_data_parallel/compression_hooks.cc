// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {

comm::Work NoOpHook::Reduce(GradientBucket&, comm::Communicator&) { return comm::Work(); }

CompressionHook::CompressionHook(DType dtype) : dtype_(dtype) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return;
  throw InvalidArgumentError(absl::StrCat("CompressionHook: ", DTypeName(dtype),
                                          "; gradients are compressed to float16 or bfloat16"));
}

void CompressionHook::OnNewBuckets(const std::vector<GradientBucket*>& buckets) {
  compressed_.assign(buckets.size(), Tensor());
}

comm::Work CompressionHook::Reduce(GradientBucket& bucket, comm::Communicator& group) {
  const Tensor& buffer = bucket.buffer();
  if (buffer.dtype() == dtype_) {
    return group.AllReduce(buffer, {.op = comm::ReduceOp::kAverage});
  }
  Tensor& compressed = compressed_[static_cast<size_t>(bucket.index())];
  if (!compressed.defined()) {
    const DeviceScope device(buffer.device());
    compressed = FromStorage(
        group.Allocate(buffer.numel() * ItemSize(dtype_), MemoryCategory::kCommunication),
        {buffer.numel()}, dtype_);
  }
  CopyInto(compressed, buffer);
  const comm::Work work = group.AllReduce(compressed, {.op = comm::ReduceOp::kAverage});
  // On the communication thread, while backward goes on; its ops run as this thread's do.
  return work.Then([buffer, compressed, state = CurrentThreadState()] {
    const ScopedThreadState scope(state);
    CopyInto(buffer, compressed);
  });
}

}  // namespace lockstep::strategies
