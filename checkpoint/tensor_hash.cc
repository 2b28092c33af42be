// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/tensor_hash.h"

#include "lockstep/base/hash.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::checkpoint::internal {

uint64_t HashOf(const Tensor& tensor) {
  if (tensor.device() == kMeta || tensor.numel() == 0) return 0;
  ThreadState plain = CurrentThreadState();
  plain.layer_mask = 0;
  ScopedThreadState scope(plain);
  Tensor bytes = Contiguous(tensor);
  if (bytes.device().type == DeviceType::kCuda) bytes = To(bytes, Cpu(0));
  return Hash64(RawData(bytes), static_cast<size_t>(bytes.bytes()));
}

}  // namespace lockstep::checkpoint::internal
