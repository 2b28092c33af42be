// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Reductions over dimensions. Work is cut by sizes only, partial results are kept in double (int64
// for integers) and combined in order: the result does not depend on the thread count.
//
// Two walks: by rows, where the reduced dimensions hold the smaller stride (each output reduces
// runs of memory), and by columns, where kept dimensions do (rows of memory are added element by
// element, as for the gradient of a bias).
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu/convert.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/reduce_block.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::cpu {
namespace {

// Elements of one piece of a long row.
constexpr int64_t kRowPiece = 16 * kReduceBlock;
// Rows of one piece of a column reduction: as many as float32 sums add without harm.
constexpr int64_t kPieceRows = 128;
// Columns of one task: accumulators and a group of rows fit the first-level cache.
constexpr int64_t kColumnBlock = 1024;
// Fewer columns than this are not worth the walk by columns.
constexpr int64_t kMinColumns = 4;

struct Layout {
  LoopVector kept_sizes;
  StridedArray kept;  // x over the kept dimensions
  LoopVector reduced_sizes;
  StridedArray reduced;  // x over the reduced dimensions
  int64_t outputs = 1;
  int64_t reduced_count = 1;
};

Layout MakeLayout(const Tensor& x, const Shape& dims) {
  Layout layout;
  const LoopVector strides = BroadcastByteStrides(x, x.shape());
  layout.kept.dtype = layout.reduced.dtype = x.dtype();
  layout.kept.data = layout.reduced.data = static_cast<char*>(KernelRawData(x));
  for (size_t i = 0; i < x.shape().size(); ++i) {
    const bool is_reduced =
        std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) != dims.end();
    (is_reduced ? layout.reduced_sizes : layout.kept_sizes).push_back(x.shape()[i]);
    (is_reduced ? layout.reduced : layout.kept).strides.push_back(strides[i]);
    (is_reduced ? layout.reduced_count : layout.outputs) *= x.shape()[i];
  }
  SortDims(layout.reduced_sizes, absl::MakeSpan(&layout.reduced, 1));
  CollapseDims(layout.reduced_sizes, absl::MakeSpan(&layout.reduced, 1));
  CollapseDims(layout.kept_sizes, absl::MakeSpan(&layout.kept, 1));
  return layout;
}

// Float32, double or int64 in the loops; double or int64 between them.
template <typename T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;

template <typename T>
T Identity(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
    case ReduceOp::kMax:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    case ReduceOp::kMin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case ReduceOp::kAll:
      return 1;
    default:
      return 0;
  }
}

template <typename W>
W Combine(ReduceOp op, W a, W b) {
  switch (op) {
    case ReduceOp::kSum:
      if constexpr (std::is_integral_v<W>) {
        return static_cast<W>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      } else {
        return a + b;
      }
    case ReduceOp::kMax:
      return a != a || a > b ? a : b;
    case ReduceOp::kMin:
      return a != a || a < b ? a : b;
    case ReduceOp::kAll:
      return a != 0 && b != 0;
    case ReduceOp::kAny:
      return a != 0 || b != 0;
  }
  return 0;
}

// What a reduction does to its results before they are written.
struct Finish {
  DType dtype;         // of the output
  double divisor = 1;  // of a mean
  template <typename W>
  void Write(int64_t count, W* results, char* out) const {
    if constexpr (std::is_floating_point_v<W>) {
      if (divisor != 1) {
        for (int64_t i = 0; i < count; ++i) results[i] /= divisor;
      }
    }
    ConvertElements(kDTypeOf<W>, dtype, count, results, out);
  }
};

// ---- By rows ----

// Elements [begin, end) of the reduced dimensions of one output.
template <typename T>
Wide<T> ReduceRange(ReduceOp op, const Layout& layout, const StridedArray& row, int64_t begin,
                    int64_t end) {
  static_assert(kReduceBlock <= kReadBlock);
  alignas(64) T buffer[kReduceBlock];
  const bool packed_runs = !row.strides.empty() && row.strides.back() == ItemSize(row.dtype) &&
                           layout.reduced_sizes.back() >= kLoopBlock;
  LoopPosition position(layout.reduced_sizes, begin);
  Wide<T> result = Identity<Wide<T>>(op);
  while (begin < end) {
    int64_t count = std::min(end - begin, kReduceBlock);
    if (packed_runs) count = std::min(count, position.InnerLeft(layout.reduced_sizes));
    const T* block = ReadElements<T>(row, layout.reduced_sizes, position, count, buffer);
    result = Combine(op, result, static_cast<Wide<T>>(ReduceBlock(op, count, block)));
    begin += count;
    if (begin < end) position.Advance(layout.reduced_sizes, count);
  }
  return result;
}

template <typename T>
void ReduceShortRows(ReduceOp op, KernelContext& context, const Layout& layout,
                     const Finish& finish, char* out) {
  constexpr int64_t kBatch = 64;
  const int64_t rows_per_chunk = std::max<int64_t>(1, kLoopChunk / layout.reduced_count);
  context.ParallelFor(layout.outputs, rows_per_chunk, [&](int64_t begin, int64_t end) {
    Wide<T> results[kBatch];
    LoopPosition position(layout.kept_sizes, begin);
    StridedArray row = layout.reduced;
    while (begin < end) {
      const int64_t batch = std::min(kBatch, end - begin);
      for (int64_t i = 0; i < batch; ++i) {
        row.data = layout.kept.data + position.Offset(layout.kept.strides);
        results[i] = ReduceRange<T>(op, layout, row, 0, layout.reduced_count);
        position.Advance(layout.kept_sizes, 1);
      }
      finish.Write(batch, results, out + begin * ItemSize(finish.dtype));
      begin += batch;
    }
  });
}

template <typename T>
void ReduceLongRows(ReduceOp op, KernelContext& context, const Layout& layout, const Finish& finish,
                    char* out) {
  using W = Wide<T>;
  const int64_t pieces = (layout.reduced_count + kRowPiece - 1) / kRowPiece;
  W* partials = context.Workspace<W>(layout.outputs * pieces);
  context.ParallelFor(layout.outputs * pieces, 1, [&](int64_t begin, int64_t) {
    const int64_t first = begin % pieces * kRowPiece;
    StridedArray row = layout.reduced;
    row.data = layout.kept.data +
               LoopPosition(layout.kept_sizes, begin / pieces).Offset(layout.kept.strides);
    partials[begin] =
        ReduceRange<T>(op, layout, row, first, std::min(first + kRowPiece, layout.reduced_count));
  });
  for (int64_t i = 0; i < layout.outputs; ++i) {
    W result = partials[i * pieces];
    for (int64_t p = 1; p < pieces; ++p) result = Combine(op, result, partials[i * pieces + p]);
    finish.Write(1, &result, out + i * ItemSize(finish.dtype));
  }
}

// ---- By columns ----

// The accumulators of `columns` columns from `first_column` on, over rows [begin, end) of elements
// E, which is T, or bfloat16 where those of a row are neighbours.
template <typename E, typename T>
void AccumulatePiece(ReduceOp op, const Layout& layout, const char* matrix, int64_t first_column,
                     int64_t columns, int64_t begin, int64_t end, T* accumulator) {
  alignas(64) E buffers[kRowGroup][kColumnBlock];
  const LoopVector column_sizes = {columns};
  StridedArray row = {nullptr, layout.kept.dtype, {layout.kept.strides.back()}};
  std::fill_n(accumulator, columns, Identity<T>(op));
  LoopPosition position(layout.reduced_sizes, begin);
  while (begin < end) {
    const int group = static_cast<int>(std::min<int64_t>(kRowGroup, end - begin));
    const E* rows[kRowGroup];
    for (int r = 0; r < group; ++r) {
      row.data = const_cast<char*>(matrix) + position.Offset(layout.reduced.strides) +
                 first_column * row.strides[0];
      rows[r] =
          ReadElements<E>(row, column_sizes, LoopPosition(column_sizes, 0), columns, buffers[r]);
      position.Advance(layout.reduced_sizes, 1);
    }
    AccumulateRows(op, group, columns, rows, accumulator);
    begin += group;
  }
}

template <typename E, typename T>
void ReduceColumns(ReduceOp op, KernelContext& context, const Layout& layout, const Finish& finish,
                   char* out) {
  using W = Wide<T>;
  const int64_t columns = layout.kept_sizes.back();
  const LoopVector outer_sizes(layout.kept_sizes.begin(), layout.kept_sizes.end() - 1);
  const LoopVector outer_strides(layout.kept.strides.begin(), layout.kept.strides.end() - 1);
  const int64_t matrices = layout.outputs / columns;
  const int64_t blocks = (columns + kColumnBlock - 1) / kColumnBlock;
  const int64_t pieces = (layout.reduced_count + kPieceRows - 1) / kPieceRows;
  W* partials = pieces > 1 ? context.Workspace<W>(matrices * pieces * columns) : nullptr;
  context.ParallelFor(matrices * pieces * blocks, 1, [&](int64_t task, int64_t) {
    const int64_t matrix = task / (pieces * blocks);
    const int64_t piece = task / blocks % pieces;
    const int64_t first = task % blocks * kColumnBlock;
    const int64_t count = std::min(kColumnBlock, columns - first);
    alignas(64) T accumulator[kColumnBlock];
    alignas(64) W wide[kColumnBlock];
    AccumulatePiece<E>(op, layout,
                       layout.kept.data + LoopPosition(outer_sizes, matrix).Offset(outer_strides),
                       first, count, piece * kPieceRows,
                       std::min((piece + 1) * kPieceRows, layout.reduced_count), accumulator);
    W* target = pieces > 1 ? partials + (matrix * pieces + piece) * columns + first : wide;
    std::copy_n(accumulator, count, target);
    if (pieces == 1) {
      finish.Write(count, wide, out + (matrix * columns + first) * ItemSize(finish.dtype));
    }
  });
  if (pieces == 1) return;
  context.ParallelFor(matrices * blocks, 1, [&](int64_t task, int64_t) {
    const int64_t matrix = task / blocks;
    const int64_t first = task % blocks * kColumnBlock;
    const int64_t count = std::min(kColumnBlock, columns - first);
    alignas(64) W result[kColumnBlock];
    const W* source = partials + matrix * pieces * columns + first;
    std::copy_n(source, count, result);
    for (int64_t piece = 1; piece < pieces; ++piece) {
      source += columns;
      for (int64_t j = 0; j < count; ++j) result[j] = Combine(op, result[j], source[j]);
    }
    finish.Write(count, result, out + (matrix * columns + first) * ItemSize(finish.dtype));
  });
}

// ---- Choice ----

template <typename T>
void ReduceAs(ReduceOp op, KernelContext& context, const Layout& layout, const Finish& finish,
              char* out) {
  if (layout.outputs == 0) return;
  if (layout.reduced_count == 0) {
    context.ParallelFor(layout.outputs, kColumnBlock, [&](int64_t begin, int64_t end) {
      Wide<T> results[kColumnBlock];
      std::fill_n(results, end - begin, Identity<Wide<T>>(op));
      finish.Write(end - begin, results, out + begin * ItemSize(finish.dtype));
    });
    return;
  }
  const bool by_columns = !layout.kept_sizes.empty() && !layout.reduced_sizes.empty() &&
                          layout.kept_sizes.back() >= kMinColumns &&
                          layout.kept.strides.back() < layout.reduced.strides.back();
  if constexpr (std::is_same_v<T, float>) {
    // The gradient of a bias: converted on the way into the sum instead of beforehand.
    if (by_columns && layout.kept.dtype == DType::kBFloat16) {
      return ReduceColumns<bfloat16, float>(op, context, layout, finish, out);
    }
  }
  if (by_columns) return ReduceColumns<T, T>(op, context, layout, finish, out);
  if (layout.reduced_count <= kRowPiece)
    return ReduceShortRows<T>(op, context, layout, finish, out);
  ReduceLongRows<T>(op, context, layout, finish, out);
}

void Reduce(ReduceOp op, KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
            const Attributes& attributes, bool mean = false) {
  const Tensor& x = inputs[0];
  const Layout layout = MakeLayout(x, attributes.As<ReduceAttributes>().dims);
  const Finish finish = {outputs[0].dtype(),
                         mean ? static_cast<double>(layout.reduced_count) : 1.0};
  char* out = static_cast<char*>(KernelRawData(outputs[0]));
  switch (x.dtype()) {
    case DType::kFloat32:
    case DType::kBFloat16:
    case DType::kFloat16:
      return ReduceAs<float>(op, context, layout, finish, out);
    case DType::kFloat64:
      return ReduceAs<double>(op, context, layout, finish, out);
    default:
      return ReduceAs<int64_t>(op, context, layout, finish, out);
  }
}

}  // namespace

#define LOCKSTEP_REDUCE_KERNEL(name, op, mean)                                             \
  void name##Kernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs, \
                    const Scalars&, const Attributes& attributes) {                        \
    Reduce(ReduceOp::op, context, inputs, outputs, attributes, mean);                      \
  }
LOCKSTEP_REDUCE_KERNEL(Sum, kSum, false)
LOCKSTEP_REDUCE_KERNEL(Mean, kSum, true)
LOCKSTEP_REDUCE_KERNEL(Max, kMax, false)
LOCKSTEP_REDUCE_KERNEL(Min, kMin, false)
LOCKSTEP_REDUCE_KERNEL(All, kAll, false)
LOCKSTEP_REDUCE_KERNEL(Any, kAny, false)
#undef LOCKSTEP_REDUCE_KERNEL

}  // namespace lockstep::cpu
