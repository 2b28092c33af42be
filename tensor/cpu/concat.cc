// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Joining tensors, and putting a gradient back into the place it was sliced from.
#include <cstdint>
#include <cstring>

#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/strided_copy.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::cpu {
namespace {

// Copies x to the positions start, start + step, ... along `dim` of y.
void CopyToSlices(const KernelContext& context, const Tensor& x, int64_t dim, int64_t start,
                  int64_t step, const Tensor& y) {
  StridedArray to = {static_cast<char*>(KernelRawData(y)), y.dtype(),
                     BroadcastByteStrides(y, y.shape())};
  to.data += start * y.strides()[dim] * ItemSize(y.dtype());
  to.strides[dim] = y.strides()[dim] * ItemSize(y.dtype()) * step;
  const StridedArray from = {static_cast<char*>(KernelRawData(x)), x.dtype(),
                             BroadcastByteStrides(x, x.shape())};
  StridedCopy(LoopVector(x.shape().begin(), x.shape().end()), to, from).Run(context);
}

}  // namespace

void ConcatKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                  const Scalars&, const Attributes& attributes) {
  const int64_t dim = attributes.As<DimAttributes>().dim;
  int64_t start = 0;
  for (const Tensor& x : inputs) {
    if (x.numel() > 0) CopyToSlices(context, x, dim, start, 1, outputs[0]);
    start += x.shape()[dim];
  }
}

void SliceBackwardKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                         const Scalars&, const Attributes& attributes) {
  const auto& slice = attributes.As<SliceBackwardAttributes>();
  const Tensor& dx = outputs[0];
  char* out = static_cast<char*>(KernelRawData(dx));
  context.ParallelFor(dx.bytes(), 4 * kLoopChunk, [&](int64_t begin, int64_t end) {
    std::memset(out + begin, 0, static_cast<size_t>(end - begin));
  });
  if (inputs[0].numel() > 0) {
    CopyToSlices(context, inputs[0], slice.dim, slice.start, slice.step, dx);
  }
}

}  // namespace lockstep::cpu
