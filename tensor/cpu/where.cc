// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Selection by a mask: Where and TriangularMask. Elements are moved as bits.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op_attributes.h"

namespace lockstep::cpu {
namespace {

template <typename U>
void WhereBlock(int64_t n, char* const* data) {
  const uint8_t* condition = In<uint8_t>(data[1]);
  const U* x = In<U>(data[2]);
  const U* y = In<U>(data[3]);
  U* z = Out<U>(data[0]);
  for (int64_t i = 0; i < n; ++i) {
    // Both are read, so that the choice compiles to a blend.
    const U a = x[i];
    const U b = y[i];
    z[i] = condition[i] != 0 ? a : b;
  }
}

// Copies columns [first, last) of a row of `columns` and zeros the others, as far as they lie in
// the block [begin, end) of the row.
void KeepColumns(int64_t begin, int64_t end, int64_t first, int64_t last, int64_t item_size,
                 const char* in, char* out) {
  first = std::clamp(first, begin, end);
  last = std::clamp(last, first, end);
  const auto bytes = [&](int64_t columns) { return static_cast<size_t>(columns * item_size); };
  std::memset(out, 0, bytes(first - begin));
  if (in != out)
    std::memcpy(out + bytes(first - begin), in + bytes(first - begin), bytes(last - first));
  std::memset(out + bytes(last - begin), 0, bytes(end - last));
}

}  // namespace

void WhereKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                 const Scalars&, const Attributes&) {
  const int64_t item_size = ItemSize(outputs[0].dtype());
  RunStridedLoop(context, outputs, inputs,
                 [&](int64_t, int64_t n, char* const* data) {
                   switch (item_size) {
                     case 1:
                       return WhereBlock<uint8_t>(n, data);
                     case 2:
                       return WhereBlock<uint16_t>(n, data);
                     case 4:
                       return WhereBlock<uint32_t>(n, data);
                     default:
                       return WhereBlock<uint64_t>(n, data);
                   }
                 },
                 {.raw = true});
}

void TriangularMaskKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                          const Scalars&, const Attributes& attributes) {
  const auto& triangle = attributes.As<TriangleAttributes>();
  const Tensor& y = outputs[0];
  const int64_t columns = y.shape()[y.shape().size() - 1];
  const int64_t rows = y.shape()[y.shape().size() - 2];
  const int64_t item_size = ItemSize(y.dtype());
  // A diagonal beyond the matrix keeps all or nothing; clamped, it cannot overflow below.
  const int64_t diagonal = std::clamp(triangle.diagonal, -rows, columns);
  RunStridedLoop(context, outputs, inputs,
                 [&](int64_t index, int64_t n, char* const* data) {
                   const int64_t last = index + n;
                   int64_t done = 0;
                   while (index < last) {
                     const int64_t row = index / columns % rows;
                     const int64_t begin = index % columns;
                     const int64_t end = std::min(columns, begin + last - index);
                     const int64_t border = row + diagonal;
                     if (triangle.upper) {
                       KeepColumns(begin, end, border, columns, item_size,
                                   data[1] + done * item_size, data[0] + done * item_size);
                     } else {
                       KeepColumns(begin, end, 0, border + 1, item_size, data[1] + done * item_size,
                                   data[0] + done * item_size);
                     }
                     done += end - begin;
                     index += end - begin;
                   }
                 },
                 {.logical_order = true, .raw = true});
}

}  // namespace lockstep::cpu
