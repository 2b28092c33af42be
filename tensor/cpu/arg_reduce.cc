// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// ArgMax and ArgMin: the first index of the extreme value along one dimension; a NaN is extreme.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/reduce_block.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::cpu {
namespace {

// The best element so far of one row. `found` tells it from the start value.
template <typename T>
struct Best {
  T value{};
  int64_t index = 0;
  bool found = false;
};

template <typename T>
bool IsNan(T value) {
  return value != value;
}

// Looks for a better element in a packed block whose first element has index `first`. The
// vectorised extreme of the block comes first: mostly it is no better, and no element is looked at.
template <typename T>
void Improve(ReduceOp op, int64_t first, int64_t count, const T* block, Best<T>& best) {
  const T extreme = static_cast<T>(ReduceBlock(op, count, block));
  if (best.found) {
    if (IsNan(best.value)) return;
    const bool better =
        IsNan(extreme) || (op == ReduceOp::kMax ? extreme > best.value : extreme < best.value);
    if (!better) return;
  }
  const T* position = IsNan(extreme) ? std::find_if(block, block + count, IsNan<T>)
                                     : std::find(block, block + count, extreme);
  best = {extreme, first + (position - block), true};
}

template <typename T>
int64_t ArgReduceRow(ReduceOp op, const StridedArray& row, int64_t count) {
  alignas(64) T buffer[kReduceBlock];
  const LoopVector sizes = {count};
  Best<T> best;
  for (int64_t i = 0; i < count; i += kReduceBlock) {
    const int64_t n = std::min(kReduceBlock, count - i);
    Improve(op, i, n, ReadElements<T>(row, sizes, LoopPosition(sizes, i), n, buffer), best);
  }
  return best.index;
}

template <typename T>
void ArgReduceAs(ReduceOp op, const KernelContext& context, const Tensor& x, int64_t dim,
                 int64_t* out) {
  LoopVector sizes(x.shape().begin(), x.shape().end());
  LoopVector strides = BroadcastByteStrides(x, x.shape());
  StridedArray row = {static_cast<char*>(KernelRawData(x)), x.dtype(), {strides[dim]}};
  const int64_t count = sizes[dim];
  sizes.erase(sizes.begin() + dim);
  strides.erase(strides.begin() + dim);
  const int64_t rows_per_chunk = std::max<int64_t>(1, kLoopChunk / std::max<int64_t>(1, count));
  const int64_t rows = count == 0 ? 0 : x.numel() / count;
  context.ParallelFor(rows, rows_per_chunk, [&](int64_t begin, int64_t end) {
    LoopPosition position(sizes, begin);
    StridedArray current = row;
    for (; begin < end; ++begin) {
      current.data = row.data + position.Offset(strides);
      out[begin] = ArgReduceRow<T>(op, current, count);
      position.Advance(sizes, 1);
    }
  });
}

void ArgReduce(ReduceOp op, const KernelContext& context, TensorSpan inputs,
               absl::Span<Tensor> outputs, const Attributes& attributes) {
  const Tensor& x = inputs[0];
  int64_t* out = KernelData<int64_t>(outputs[0]);
  if (x.shape().empty()) {
    out[0] = 0;
    return;
  }
  const int64_t dim = attributes.As<ArgReduceAttributes>().dim;
  switch (ComputeDType(x.dtype())) {
    case DType::kFloat32:
      return ArgReduceAs<float>(op, context, x, dim, out);
    case DType::kFloat64:
      return ArgReduceAs<double>(op, context, x, dim, out);
    default:
      return ArgReduceAs<int64_t>(op, context, x, dim, out);
  }
}

}  // namespace

void ArgMaxKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                  const Scalars&, const Attributes& attributes) {
  ArgReduce(ReduceOp::kMax, context, inputs, outputs, attributes);
}

void ArgMinKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                  const Scalars&, const Attributes& attributes) {
  ArgReduce(ReduceOp::kMin, context, inputs, outputs, attributes);
}

}  // namespace lockstep::cpu
