// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Adding by index: ScatterAdd, IndexAdd, EmbeddingBackward. Threads share out what is written, and
// each element of the result adds its sources in index order: no atomics, and the same bits at
// every thread count. 16-bit floats are summed in float32 and rounded once.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu/convert.h"
#include "lockstep/tensor/cpu/index_list.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/reduce_block.h"
#include "lockstep/tensor/cpu/strided_copy.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::cpu {
namespace {

template <typename T>
void AddTo(T& target, T value) {
  if constexpr (std::is_integral_v<T>) {
    using W = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    target = static_cast<T>(static_cast<W>(target) + static_cast<W>(value));
  } else {
    target += value;
  }
}

// Sources and where they go. All sizes are those of the source's shape.
struct ScatterPlan {
  int64_t dim;
  const int64_t* indices;
  LoopVector index_strides;  // in elements of `indices`
};

LoopVector Without(const LoopVector& vector, int64_t dim) {
  LoopVector result = vector;
  result.erase(result.begin() + dim);
  return result;
}

// sum is row-major in y's shape. Lines along `dim` are independent; a thread takes some of them.
template <typename T>
void AddLines(const KernelContext& context, const Tensor& source, const Tensor& y,
              const ScatterPlan& plan, T* sum) {
  const int64_t dim = plan.dim;
  const LoopVector sizes(source.shape().begin(), source.shape().end());
  const LoopVector source_strides = BroadcastByteStrides(source, source.shape());
  const Strides y_strides = ContiguousStrides(y.shape());
  const LoopVector line_sizes = Without(sizes, dim);
  const LoopVector source_lines = Without(source_strides, dim);
  const LoopVector index_lines = Without(plan.index_strides, dim);
  const LoopVector y_lines = Without(LoopVector(y_strides.begin(), y_strides.end()), dim);
  const int64_t length = sizes[dim];
  const char* data = static_cast<const char*>(KernelRawData(source));
  const DType dtype = source.dtype();
  const int64_t lines = source.numel() / length;
  // Blocks of neighbouring lines, taken one step along `dim` at a time: memory is walked in order
  // whether `dim` is the first dimension or the last.
  constexpr int64_t kLines = 256;
  context.ParallelFor(
      lines, std::clamp<int64_t>(kLoopChunk / length, 1, kLines), [&](int64_t begin, int64_t end) {
        int64_t source_offsets[kLines];
        int64_t index_offsets[kLines];
        int64_t y_offsets[kLines];
        const int64_t count = end - begin;
        LoopPosition position(line_sizes, begin);
        for (int64_t i = 0; i < count; ++i) {
          source_offsets[i] = position.Offset(source_lines);
          index_offsets[i] = position.Offset(index_lines);
          y_offsets[i] = position.Offset(y_lines);
          position.Advance(line_sizes, 1);
        }
        for (int64_t k = 0; k < length; ++k) {
          for (int64_t i = 0; i < count; ++i) {
            const char* element = data + source_offsets[i] + k * source_strides[dim];
            T value;
            if (dtype == kDTypeOf<T>) {
              std::memcpy(&value, element, sizeof(T));
            } else {
              ConvertElements(dtype, kDTypeOf<T>, 1, element, &value);
            }
            const int64_t index = plan.indices[index_offsets[i] + k * plan.index_strides[dim]];
            AddTo(sum[y_offsets[i] + index * y_strides[dim]], value);
          }
        }
      });
}

template <typename T>
void ScatterAs(KernelContext& context, const Tensor& source, const Tensor& y,
               const ScatterPlan& plan) {
  if (y.dtype() == kDTypeOf<T>) return AddLines<T>(context, source, y, plan, KernelData<T>(y));
  T* sum = context.Workspace<T>(y.numel());
  char* out = static_cast<char*>(KernelRawData(y));
  const int64_t item_size = ItemSize(y.dtype());
  context.ParallelFor(y.numel(), kLoopChunk, [&](int64_t begin, int64_t end) {
    ConvertElements(y.dtype(), kDTypeOf<T>, end - begin, out + begin * item_size, sum + begin);
  });
  AddLines<T>(context, source, y, plan, sum);
  context.ParallelFor(y.numel(), kLoopChunk, [&](int64_t begin, int64_t end) {
    ConvertElements(kDTypeOf<T>, y.dtype(), end - begin, sum + begin, out + begin * item_size);
  });
}

// y = x, plus the sources.
void ScatterOnto(KernelContext& context, const Tensor& x, const Tensor& source, const Tensor& y,
                 const ScatterPlan& plan) {
  MakeStridedCopy(y, x).Run(context);
  if (source.numel() == 0 || y.numel() == 0) return;
  switch (ComputeDType(y.dtype())) {
    case DType::kFloat32:
      return ScatterAs<float>(context, source, y, plan);
    case DType::kFloat64:
      return ScatterAs<double>(context, source, y, plan);
    case DType::kInt64:
      return ScatterAs<int64_t>(context, source, y, plan);
    case DType::kInt32:
      return ScatterAs<int32_t>(context, source, y, plan);
    case DType::kUInt8:
      return ScatterAs<uint8_t>(context, source, y, plan);
    default:
      throw InternalError("scatter of bool");
  }
}

// ---- EmbeddingBackward ----

// For each row of the table, the positions that name it, in order: positions[starts[row]] up to
// starts[row + 1].
struct PositionsByRow {
  int64_t* starts;
  int64_t* positions;
};

PositionsByRow SortByRow(KernelContext& context, const int64_t* indices, int64_t count,
                         int64_t rows) {
  PositionsByRow result = {context.Workspace<int64_t>(rows + 1), context.Workspace<int64_t>(count)};
  std::fill_n(result.starts, rows + 1, int64_t{0});
  for (int64_t i = 0; i < count; ++i) ++result.starts[indices[i]];
  // Ends first; filling from the back turns them into starts and keeps the order.
  for (int64_t row = 0, end = 0; row <= rows; ++row) {
    end += result.starts[row];
    result.starts[row] = end;
  }
  for (int64_t i = count; i-- > 0;) result.positions[--result.starts[indices[i]]] = i;
  return result;
}

constexpr int64_t kColumns = 1024;

template <typename T>
void EmbeddingBackwardAs(KernelContext& context, const Tensor& grad, const int64_t* indices,
                         const Tensor& dweight) {
  const int64_t rows = dweight.shape()[0];
  const int64_t columns = dweight.shape()[1];
  const int64_t count = grad.numel() / columns;
  const PositionsByRow by_row = SortByRow(context, indices, count, rows);
  const LoopVector strides = BroadcastByteStrides(grad, grad.shape());
  LoopVector lead_sizes(grad.shape().begin(), grad.shape().end() - 1);
  StridedArray lead = {static_cast<char*>(KernelRawData(grad)), grad.dtype(),
                       LoopVector(strides.begin(), strides.end() - 1)};
  CollapseDims(lead_sizes, absl::MakeSpan(&lead, 1));
  char* out = static_cast<char*>(KernelRawData(dweight));
  const int64_t item_size = ItemSize(dweight.dtype());

  context.ParallelFor(
      rows, std::max<int64_t>(1, kLoopChunk / columns), [&](int64_t begin, int64_t end) {
        alignas(64) T sum[kColumns];
        alignas(64) T buffer[kColumns];
        for (int64_t row = begin; row < end; ++row) {
          char* target = out + row * columns * item_size;
          const int64_t first = by_row.starts[row];
          const int64_t last = by_row.starts[row + 1];
          if (first == last) {
            std::memset(target, 0, static_cast<size_t>(columns * item_size));
            continue;
          }
          for (int64_t column = 0; column < columns; column += kColumns) {
            const LoopVector block = {std::min(kColumns, columns - column)};
            std::fill_n(sum, block[0], T{0});
            for (int64_t p = first; p < last; ++p) {
              const StridedArray source = {
                  lead.data + LoopPosition(lead_sizes, by_row.positions[p]).Offset(lead.strides) +
                      column * strides.back(),
                  grad.dtype(),
                  {strides.back()}};
              const T* values =
                  ReadElements<T>(source, block, LoopPosition(block, 0), block[0], buffer);
              AccumulateRows(ReduceOp::kSum, 1, block[0], &values, sum);
            }
            ConvertElements(kDTypeOf<T>, dweight.dtype(), block[0], sum,
                            target + column * item_size);
          }
        }
      });
}

}  // namespace

void ScatterAddKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                      const Scalars&, const Attributes& attributes) {
  const Tensor& x = inputs[0];
  const int64_t dim = attributes.As<DimAttributes>().dim;
  const int64_t limit = x.shape().empty() ? 1 : x.shape()[dim];
  const int64_t* indices = CheckedIndices(context, inputs[1], limit, "ScatterAdd");
  if (x.shape().empty()) {
    // One element: the same as a tensor of shape [1].
    const auto as_vector = [](const Tensor& t) {
      return Tensor(MakeRef<TensorImpl>(t.storage(), Shape{1}, Strides{1}, t.offset(), t.dtype(),
                                        t.device()));
    };
    return ScatterOnto(context, as_vector(x), as_vector(inputs[2]), as_vector(outputs[0]),
                       {0, indices, {1}});
  }
  const Strides index_strides = ContiguousStrides(inputs[1].shape());
  ScatterOnto(context, x, inputs[2], outputs[0],
              {dim, indices, LoopVector(index_strides.begin(), index_strides.end())});
}

void IndexAddKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                    const Scalars&, const Attributes& attributes) {
  const Tensor& x = inputs[0];
  const int64_t dim = attributes.As<DimAttributes>().dim;
  const int64_t* indices = CheckedIndices(context, inputs[1], x.shape()[dim], "IndexAdd");
  LoopVector index_strides(x.shape().size(), 0);
  index_strides[dim] = 1;
  ScatterOnto(context, x, inputs[2], outputs[0], {dim, indices, index_strides});
}

void EmbeddingBackwardKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                             const Scalars&, const Attributes&) {
  const Tensor& dweight = outputs[0];
  const int64_t* indices =
      CheckedIndices(context, inputs[1], dweight.shape()[0], "EmbeddingBackward");
  if (dweight.numel() == 0) return;
  if (dweight.dtype() == DType::kFloat64) {
    EmbeddingBackwardAs<double>(context, inputs[0], indices, dweight);
  } else {
    EmbeddingBackwardAs<float>(context, inputs[0], indices, dweight);
  }
}

}  // namespace lockstep::cpu
