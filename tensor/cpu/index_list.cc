// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/cpu/index_list.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::cpu {
namespace {

// "[1, 2]", the position of a row-major element number.
std::string PositionText(const Shape& shape, int64_t linear) {
  Shape position(shape.size(), 0);
  for (size_t i = shape.size(); i-- > 0;) {
    position[i] = linear % shape[i];
    linear /= shape[i];
  }
  return ToString(position);
}

}  // namespace

const int64_t* CheckedIndices(KernelContext& context, const Tensor& index, int64_t limit,
                              absl::string_view call) {
  const int64_t count = index.numel();
  if (count == 0) return nullptr;
  int64_t* indices = context.Workspace<int64_t>(count);
  LoopVector sizes(index.shape().begin(), index.shape().end());
  StridedArray array = {static_cast<char*>(KernelRawData(index)), index.dtype(),
                        BroadcastByteStrides(index, index.shape())};
  CollapseDims(sizes, absl::MakeSpan(&array, 1));
  context.ParallelFor(count, kLoopChunk, [&](int64_t begin, int64_t end) {
    LoopPosition position(sizes, begin);
    while (begin < end) {
      const int64_t n = std::min(kReadBlock, end - begin);
      const int64_t* read = ReadElements<int64_t>(array, sizes, position, n, indices + begin);
      if (read != indices + begin) std::copy_n(read, n, indices + begin);
      for (int64_t i = begin; i < begin + n; ++i) {
        if (indices[i] >= 0 && indices[i] < limit) continue;
        throw OutOfRangeError(absl::StrCat(call, ": index ", indices[i], " at position ",
                                           PositionText(index.shape(), i),
                                           " is out of range; it must be in [0, ", limit, ")"));
      }
      begin += n;
      if (begin < end) position.Advance(sizes, n);
    }
  });
  return indices;
}

}  // namespace lockstep::cpu
