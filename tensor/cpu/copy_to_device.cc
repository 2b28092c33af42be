// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Copies between logical CPU devices and host memory.
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/strided_copy.h"
#include "lockstep/tensor/kernel.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::cpu {

void CopyToDeviceKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                        const Scalars&, const Attributes& attributes) {
  const StridedCopy copy = MakeStridedCopy(outputs[0], inputs[0]);
  if (!attributes.As<DeviceAttributes>().non_blocking || outputs[0].numel() == 0) {
    return copy.Run(context);
  }
  // On the source's copy stream, on its one thread. Storages, not tensors, are held until then:
  // what layers keep with a tensor must not be destroyed on that thread.
  const Stream stream = Stream::Copy(context.device());
  const Event done = stream.Enqueue(
      [copy, from = inputs[0].storage(), to = outputs[0].storage(), device = context.device()] {
        copy.Run(KernelContext(device, /*stream=*/1, /*thread_count=*/1));
      });
  outputs[0].storage()->SetPending(done);
}

}  // namespace lockstep::cpu
