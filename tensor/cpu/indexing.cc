// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Gathering by index: Embedding, IndexSelect, Gather. Elements are moved as bytes; all indices are
// checked before the first one is written.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lockstep/tensor/cpu/index_list.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::cpu {
namespace {

StridedArray ArrayOf(const Tensor& tensor) {
  return {static_cast<char*>(KernelRawData(tensor)), tensor.dtype(),
          BroadcastByteStrides(tensor, tensor.shape())};
}

// y[o..., n, i...] = x[o..., indices[n], i...] where `dim` is the position of n: whole slices over
// the dimensions after `dim`. y is row-major.
void SelectSlices(const KernelContext& context, const Tensor& x, int64_t dim,
                  const int64_t* indices, int64_t index_count, const Tensor& y) {
  const StridedArray array = ArrayOf(x);
  LoopVector outer_sizes(x.shape().begin(), x.shape().begin() + dim);
  StridedArray outer = {array.data, array.dtype,
                        LoopVector(array.strides.begin(), array.strides.begin() + dim)};
  CollapseDims(outer_sizes, absl::MakeSpan(&outer, 1));
  LoopVector slice_sizes(x.shape().begin() + dim + 1, x.shape().end());
  StridedArray slice = {array.data, array.dtype,
                        LoopVector(array.strides.begin() + dim + 1, array.strides.end())};
  CollapseDims(slice_sizes, absl::MakeSpan(&slice, 1));
  int64_t slice_count = 1;
  for (const int64_t size : slice_sizes) slice_count *= size;
  const int64_t slice_bytes = slice_count * ItemSize(x.dtype());
  char* out = static_cast<char*>(KernelRawData(y));
  const LoopPosition start(slice_sizes, 0);
  context.ParallelFor(
      y.numel() / slice_count, std::max<int64_t>(1, kLoopChunk / slice_count),
      [&](int64_t begin, int64_t end) {
        StridedArray from = slice;
        for (; begin < end; ++begin) {
          const int64_t outer_offset =
              outer_sizes.empty()
                  ? 0
                  : LoopPosition(outer_sizes, begin / index_count).Offset(outer.strides);
          from.data = array.data + outer_offset + indices[begin % index_count] * array.strides[dim];
          GatherElements(from, slice_sizes, start, slice_count, out + begin * slice_bytes);
        }
      });
}

// y[p] = x[p with coordinate `dim` replaced by index[p]], y and index row-major in index's shape.
template <typename U>
void GatherElementwise(const KernelContext& context, const Tensor& x, int64_t dim,
                       const int64_t* indices, const Tensor& y) {
  const LoopVector sizes(y.shape().begin(), y.shape().end());
  StridedArray array = ArrayOf(x);
  // x's size may be 1 where the index's is not along `dim` only, so the stride is the true one.
  const int64_t index_stride = x.strides()[dim] * static_cast<int64_t>(sizeof(U));
  array.strides[dim] = 0;
  U* out = static_cast<U*>(KernelRawData(y));
  context.ParallelFor(y.numel(), kLoopChunk, [&](int64_t begin, int64_t end) {
    LoopPosition position(sizes, begin);
    while (begin < end) {
      const int64_t run = std::min(end - begin, position.InnerLeft(sizes));
      const char* base = array.data + position.Offset(array.strides);
      const int64_t stride = array.strides.empty() ? 0 : array.strides.back();
      for (int64_t i = 0; i < run; ++i) {
        std::memcpy(out + begin + i, base + i * stride + indices[begin + i] * index_stride,
                    sizeof(U));
      }
      position.Advance(sizes, run);
      begin += run;
    }
  });
}

}  // namespace

void EmbeddingKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                     const Scalars&, const Attributes&) {
  const Tensor& weight = inputs[0];
  const int64_t* indices = CheckedIndices(context, inputs[1], weight.shape()[0], "Embedding");
  if (outputs[0].numel() == 0) return;
  SelectSlices(context, weight, 0, indices, inputs[1].numel(), outputs[0]);
}

void IndexSelectKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                       const Scalars&, const Attributes& attributes) {
  const int64_t dim = attributes.As<DimAttributes>().dim;
  const int64_t* indices =
      CheckedIndices(context, inputs[1], inputs[0].shape()[dim], "IndexSelect");
  if (outputs[0].numel() == 0) return;
  SelectSlices(context, inputs[0], dim, indices, inputs[1].numel(), outputs[0]);
}

void GatherKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                  const Scalars&, const Attributes& attributes) {
  const Tensor& x = inputs[0];
  const Tensor& y = outputs[0];
  const int64_t dim = attributes.As<DimAttributes>().dim;
  const int64_t limit = x.shape().empty() ? 1 : x.shape()[dim];
  const int64_t* indices = CheckedIndices(context, inputs[1], limit, "Gather");
  if (y.numel() == 0) return;
  if (x.shape().empty()) {
    std::memcpy(KernelRawData(y), KernelRawData(x), static_cast<size_t>(ItemSize(x.dtype())));
    return;
  }
  switch (ItemSize(x.dtype())) {
    case 1:
      return GatherElementwise<uint8_t>(context, x, dim, indices, y);
    case 2:
      return GatherElementwise<uint16_t>(context, x, dim, indices, y);
    case 4:
      return GatherElementwise<uint32_t>(context, x, dim, indices, y);
    default:
      return GatherElementwise<uint64_t>(context, x, dim, indices, y);
  }
}

}  // namespace lockstep::cpu
