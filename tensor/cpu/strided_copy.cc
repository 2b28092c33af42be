// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/cpu/strided_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lockstep/tensor/tensor_data.h"

namespace lockstep::cpu {
namespace {

// Side of a tile of a transposing copy: 32 elements of 4 bytes are two cache lines, and the lines
// of both sides of a tile fit the first-level cache.
constexpr int64_t kTile = 32;

int64_t NumElementsOf(const LoopVector& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

// rows x columns elements; `to` is packed along columns, `from` along rows.
template <typename U>
void TransposeTile(int64_t rows, int64_t columns, char* to, int64_t to_row, const char* from,
                   int64_t from_column) {
  for (int64_t row = 0; row < rows; ++row) {
    U* out = reinterpret_cast<U*>(to + row * to_row);
    const char* in = from + row * static_cast<int64_t>(sizeof(U));
    for (int64_t column = 0; column < columns; ++column) {
      std::memcpy(out + column, in + column * from_column, sizeof(U));
    }
  }
}

void TransposeTileOf(int64_t item_size, int64_t rows, int64_t columns, char* to, int64_t to_row,
                     const char* from, int64_t from_column) {
  switch (item_size) {
    case 1:
      return TransposeTile<uint8_t>(rows, columns, to, to_row, from, from_column);
    case 2:
      return TransposeTile<uint16_t>(rows, columns, to, to_row, from, from_column);
    case 4:
      return TransposeTile<uint32_t>(rows, columns, to, to_row, from, from_column);
    default:
      return TransposeTile<uint64_t>(rows, columns, to, to_row, from, from_column);
  }
}

}  // namespace

StridedCopy::StridedCopy(LoopVector sizes, StridedArray to, StridedArray from)
    : sizes_(std::move(sizes)), to_(std::move(to)), from_(std::move(from)) {
  StridedArray arrays[] = {std::move(to_), std::move(from_)};
  SortDims(sizes_, absl::MakeSpan(arrays));
  CollapseDims(sizes_, absl::MakeSpan(arrays));
  to_ = std::move(arrays[0]);
  from_ = std::move(arrays[1]);
}

void StridedCopy::Run(const KernelContext& context) const {
  if (NumElementsOf(sizes_) == 0) return;
  const int64_t item_size = ItemSize(to_.dtype);
  if (!sizes_.empty() && to_.strides.back() == item_size && from_.strides.back() != item_size) {
    for (size_t dim = 0; dim + 1 < sizes_.size(); ++dim) {
      if (from_.strides[dim] == item_size) return CopyTiles(context, dim);
    }
  }
  CopyRuns(context);
}

void StridedCopy::CopyRuns(const KernelContext& context) const {
  const int64_t item_size = ItemSize(to_.dtype);
  const bool to_packed = sizes_.empty() || to_.strides.back() == item_size;
  context.ParallelFor(NumElementsOf(sizes_), kLoopChunk, [&](int64_t begin, int64_t end) {
    LoopPosition position(sizes_, begin);
    alignas(64) char buffer[kLoopBlock * 8];
    while (begin < end) {
      int64_t count = std::min(end - begin, position.InnerLeft(sizes_));
      if (to_packed) {
        GatherElements(from_, sizes_, position, count, to_.data + position.Offset(to_.strides));
      } else {
        count = std::min(end - begin, kLoopBlock);
        GatherElements(from_, sizes_, position, count, buffer);
        ScatterElements(to_, sizes_, position, count, buffer);
      }
      position.Advance(sizes_, count);
      begin += count;
    }
  });
}

// The innermost dimension is packed in `to`, `dim` in `from`: tiles over these two, for every
// position of the other dimensions.
void StridedCopy::CopyTiles(const KernelContext& context, size_t dim) const {
  const int64_t item_size = ItemSize(to_.dtype);
  const int64_t rows = sizes_[dim];
  const int64_t columns = sizes_.back();
  const int64_t to_row = to_.strides[dim];
  const int64_t from_column = from_.strides.back();
  LoopVector outer = sizes_;
  outer[dim] = (rows + kTile - 1) / kTile;
  outer.back() = (columns + kTile - 1) / kTile;
  LoopVector to_strides = to_.strides;
  to_strides[dim] *= kTile;
  to_strides.back() *= kTile;
  LoopVector from_strides = from_.strides;
  from_strides[dim] *= kTile;
  from_strides.back() *= kTile;
  const int64_t tiles_per_chunk = kLoopChunk / (kTile * kTile);
  context.ParallelFor(NumElementsOf(outer), tiles_per_chunk, [&](int64_t begin, int64_t end) {
    LoopPosition position(outer, begin);
    for (; begin < end; ++begin) {
      const int64_t row = position[dim] * kTile;
      const int64_t column = position[outer.size() - 1] * kTile;
      TransposeTileOf(item_size, std::min(kTile, rows - row), std::min(kTile, columns - column),
                      to_.data + position.Offset(to_strides), to_row,
                      from_.data + position.Offset(from_strides), from_column);
      position.Advance(outer, 1);
    }
  });
}

StridedCopy MakeStridedCopy(const Tensor& destination, const Tensor& source) {
  const Shape& shape = destination.shape();
  return StridedCopy(LoopVector(shape.begin(), shape.end()),
                     {static_cast<char*>(KernelRawData(destination)), destination.dtype(),
                      BroadcastByteStrides(destination, shape)},
                     {static_cast<char*>(KernelRawData(source)), source.dtype(),
                      BroadcastByteStrides(source, shape)});
}

}  // namespace lockstep::cpu
