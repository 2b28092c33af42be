// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Shapes and strides, both in elements, and the pure functions over them.
#ifndef LOCKSTEP_TENSOR_SHAPE_H_
#define LOCKSTEP_TENSOR_SHAPE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lockstep {

// A size stored in an attribute (symbolic one day; use the name where sizes are stored).
using Dim = int64_t;

using Shape = absl::InlinedVector<int64_t, 5>;
using Strides = absl::InlinedVector<int64_t, 5>;
using ShapeSpan = absl::Span<const int64_t>;

// "[2, 3]"; "[]" for zero dimensions.
std::string ToString(ShapeSpan shape);

// Product of the sizes (1 for zero dimensions). Throws InvalidArgument, prefixed by `call`, for a
// negative size or a product beyond int64.
int64_t NumElements(ShapeSpan shape, absl::string_view call = "shape");

// a == b, without a call: shapes are short and compared several times in each op.
inline bool SameSizes(const Shape& a, const Shape& b) {
  const size_t rank = a.size();
  if (b.size() != rank) return false;
  const int64_t* const x = a.data();
  const int64_t* const y = b.data();
  for (size_t i = 0; i < rank; ++i) {
    if (x[i] != y[i]) return false;
  }
  return true;
}

// Row-major strides. A size of 0 counts as 1, as in PyTorch.
Strides ContiguousStrides(ShapeSpan shape);

// Whether elements lie in row-major order without gaps (sizes of 1 may have any stride).
bool IsContiguous(ShapeSpan shape, ShapeSpan strides);

// Maps a dimension in [-rank, rank) to [0, rank); a zero-dimensional tensor accepts -1 and 0.
// Throws OutOfRange, prefixed by `call`.
int64_t NormalizeDim(int64_t dim, int64_t rank, absl::string_view call);

// PyTorch's broadcasting: sizes aligned at the right, 1 stretches. Throws InvalidArgument naming
// both shapes, prefixed by `call`.
Shape BroadcastShapes(ShapeSpan a, ShapeSpan b, absl::string_view call);

// Strides that show `shape` (strides `strides`) as `target`, 0 where stretched. `shape` must
// broadcast to `target`; throws InvalidArgument otherwise.
Strides BroadcastStrides(ShapeSpan shape, ShapeSpan strides, ShapeSpan target,
                         absl::string_view call);

// Strides of a view of (shape, strides) as `target` (same element count), or nullopt when the
// elements cannot be addressed without a copy.
std::optional<Strides> ViewStrides(ShapeSpan shape, ShapeSpan strides, ShapeSpan target);

// Replaces one -1 in `target` by what makes the element counts equal. Throws InvalidArgument.
Shape InferReshape(ShapeSpan target, int64_t element_count, absl::string_view call);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_SHAPE_H_
