// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Copies on one device: Clone, Cast, CopyInto.
#include <cstdint>
#include <cstring>

#include "lockstep/tensor/cpu/convert.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/strided_copy.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::cpu {
namespace {

void ConvertTensor(const KernelContext& context, const Tensor& destination, const Tensor& source) {
  const DType to = destination.dtype();
  const DType from = source.dtype();
  if (destination.is_contiguous() && source.is_contiguous() &&
      destination.shape() == source.shape()) {
    char* out = static_cast<char*>(KernelRawData(destination));
    const char* in = static_cast<const char*>(KernelRawData(source));
    context.ParallelFor(destination.numel(), kLoopChunk, [&](int64_t begin, int64_t end) {
      ConvertElements(from, to, end - begin, in + begin * ItemSize(from),
                      out + begin * ItemSize(to));
    });
    return;
  }
  RunStridedLoop(context, absl::MakeConstSpan(&destination, 1), absl::MakeConstSpan(&source, 1),
                 [&](int64_t, int64_t n, char* const* data) {
                   std::memcpy(data[0], data[1], static_cast<size_t>(n * ItemSize(to)));
                 },
                 {.raw = true, .inputs_as = to});
}

void Copy(const KernelContext& context, const Tensor& destination, const Tensor& source) {
  if (destination.dtype() == source.dtype()) {
    MakeStridedCopy(destination, source).Run(context);
  } else {
    ConvertTensor(context, destination, source);
  }
}

}  // namespace

void CloneKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                 const Scalars&, const Attributes&) {
  Copy(context, outputs[0], inputs[0]);
}

void CastKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                const Scalars&, const Attributes&) {
  Copy(context, outputs[0], inputs[0]);
}

void CopyIntoKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor>, const Scalars&,
                    const Attributes&) {
  Copy(context, inputs[0], inputs[1]);
}

}  // namespace lockstep::cpu
