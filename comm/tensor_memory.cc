// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/tensor_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm {
namespace {

// Calls row(packed, strided) for each run of elements along the last dimension: addresses of the
// run's first element in row-major memory and in the strided tensor.
template <typename Char, typename StridedChar, typename Row>
void ForEachRow(const Tensor& strided, Char* packed, StridedChar* base, const Row& row) {
  const int64_t item = ItemSize(strided.dtype());
  const int64_t rank = strided.rank();
  if (rank == 0) {
    row(packed, base, int64_t{1}, int64_t{0});
    return;
  }
  const int64_t length = strided.size(rank - 1);
  const int64_t stride_bytes = strided.strides()[rank - 1] * item;
  std::vector<int64_t> index(static_cast<size_t>(rank), 0);
  const int64_t rows = strided.numel() / length;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t offset = 0;
    for (int64_t d = 0; d + 1 < rank; ++d) offset += index[d] * strided.strides()[d];
    row(packed + r * length * item, base + offset * item, length, stride_bytes);
    for (int64_t d = rank - 2; d >= 0; --d) {
      if (++index[d] < strided.size(d)) break;
      index[d] = 0;
    }
  }
}

}  // namespace

AddressRange RangeOf(const Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.rank(); ++d) last += (tensor.size(d) - 1) * tensor.strides()[d];
  const int64_t item = ItemSize(tensor.dtype());
  const auto begin = reinterpret_cast<uintptr_t>(KernelRawData(tensor));
  return {begin, begin + static_cast<uintptr_t>((last + 1) * item)};
}

bool OverlapsItself(const Tensor& tensor) {
  if (tensor.is_contiguous() || tensor.numel() == 0) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // (stride, size)
  for (int64_t d = 0; d < tensor.rank(); ++d) {
    if (tensor.size(d) > 1) dims.emplace_back(tensor.strides()[d], tensor.size(d));
  }
  std::sort(dims.begin(), dims.end());
  int64_t extent = 1;  // elements spanned by the dimensions with smaller strides
  for (const auto& [stride, size] : dims) {
    if (stride < extent) return true;
    extent += (size - 1) * stride;
  }
  return false;
}

Tensor Pack(const Tensor& tensor) {
  CategoryScope category(MemoryCategory::kCommunication);
  Tensor packed = Empty(ShapeSpan(tensor.shape()), {tensor.dtype(), tensor.device()});
  PackInto(tensor, MutableRawData(packed));
  return packed;
}

void PackInto(const Tensor& tensor, void* to) {
  if (tensor.numel() == 0) return;
  const int64_t item = ItemSize(tensor.dtype());
  ForEachRow(tensor, static_cast<char*>(to), static_cast<const char*>(RawData(tensor)),
             [item](char* row, const char* from, int64_t length, int64_t stride_bytes) {
               if (stride_bytes == item) {
                 std::memcpy(row, from, static_cast<size_t>(length * item));
                 return;
               }
               for (int64_t i = 0; i < length; ++i) {
                 std::memcpy(row + i * item, from + i * stride_bytes, static_cast<size_t>(item));
               }
             });
}

void Unpack(const Tensor& source, const Tensor& destination) {
  if (destination.numel() > 0) UnpackFrom(RawData(source), destination);
}

void UnpackFrom(const void* source, const Tensor& destination) {
  if (destination.numel() == 0) return;
  const int64_t item = ItemSize(destination.dtype());
  ForEachRow(destination, static_cast<const char*>(source),
             static_cast<char*>(MutableRawData(destination)),
             [item](const char* from, char* to, int64_t length, int64_t stride_bytes) {
               if (stride_bytes == item) {
                 std::memcpy(to, from, static_cast<size_t>(length * item));
                 return;
               }
               for (int64_t i = 0; i < length; ++i) {
                 std::memcpy(to + i * stride_bytes, from + i * item, static_cast<size_t>(item));
               }
             });
}

}  // namespace lockstep::comm
