// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"

namespace lockstep {

std::string ToString(ShapeSpan shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

int64_t NumElements(ShapeSpan shape, absl::string_view call) {
  int64_t count = 1;
  bool empty = false;
  bool overflow = false;
  for (const int64_t size : shape) {
    if (size < 0) {
      throw InvalidArgumentError(
          absl::StrCat(call, ": negative size ", size, " in shape ", ToString(shape)));
    }
    if (size == 0) {
      empty = true;  // sizes after it still have to be checked
    } else if (__builtin_mul_overflow(count, size, &count)) {
      overflow = true;
      count = 1;
    }
  }
  if (empty) return 0;
  if (overflow) {
    throw InvalidArgumentError(absl::StrCat(call, ": shape ", ToString(shape),
                                            " has more elements than an int64 can count"));
  }
  return count;
}

Strides ContiguousStrides(ShapeSpan shape) {
  Strides strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

bool IsContiguous(ShapeSpan shape, ShapeSpan strides) {
  int64_t step = 1;
  bool contiguous = true;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] == 1) continue;
    if (strides[i] != step) contiguous = false;
    step *= shape[i];
  }
  return contiguous;
}

int64_t NormalizeDim(int64_t dim, int64_t rank, absl::string_view call) {
  const int64_t range = std::max<int64_t>(rank, 1);
  if (dim < -range || dim >= range) {
    throw OutOfRangeError(absl::StrCat(call, ": dimension ", dim, " is not in [", -range, ", ",
                                       range, ") of a tensor with ", rank, " dimensions"));
  }
  return dim < 0 ? dim + range : dim;
}

Shape BroadcastShapes(ShapeSpan a, ShapeSpan b, absl::string_view call) {
  const size_t rank = std::max(a.size(), b.size());
  Shape result(rank);
  for (size_t i = 0; i < rank; ++i) {  // i counts from the right
    const int64_t size_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t size_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (size_a != size_b && size_a != 1 && size_b != 1) {
      throw InvalidArgumentError(absl::StrCat(call, ": shapes ", ToString(a), " and ", ToString(b),
                                              " do not broadcast: ", size_a, " against ", size_b,
                                              " in dimension ", -1 - static_cast<int64_t>(i),
                                              "; sizes must be equal or 1"));
    }
    result[rank - 1 - i] = size_a == 1 ? size_b : size_a;
  }
  return result;
}

Strides BroadcastStrides(ShapeSpan shape, ShapeSpan strides, ShapeSpan target,
                         absl::string_view call) {
  bool fits = shape.size() <= target.size();
  Strides result(target.size(), 0);
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    const size_t to = target.size() - shape.size() + i;
    if (shape[i] == target[to]) {
      result[to] = strides[i];
    } else {
      fits = shape[i] == 1;
    }
  }
  if (!fits) {
    throw InvalidArgumentError(absl::StrCat(call, ": shape ", ToString(shape),
                                            " does not broadcast to ", ToString(target),
                                            "; sizes must be equal or 1, aligned at the right"));
  }
  return result;
}

std::optional<Strides> ViewStrides(ShapeSpan shape, ShapeSpan strides, ShapeSpan target) {
  if (shape.empty()) return Strides(target.size(), 1);
  if (shape == target) return Strides(strides.begin(), strides.end());
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return ContiguousStrides(target);

  // From the right: dimensions of `shape` that lie one after the other in memory form a chunk, and
  // each chunk must be covered by whole dimensions of `target`.
  Strides result(target.size());
  int64_t to = static_cast<int64_t>(target.size()) - 1;
  int64_t chunk_stride = strides.back();
  int64_t chunk_count = 1;
  int64_t target_count = 1;
  for (int64_t from = static_cast<int64_t>(shape.size()) - 1; from >= 0; --from) {
    chunk_count *= shape[from];
    const bool chunk_ends =
        from == 0 || (shape[from - 1] != 1 && strides[from - 1] != chunk_count * chunk_stride);
    if (!chunk_ends) continue;
    while (to >= 0 && (target_count < chunk_count || target[to] == 1)) {
      result[to] = target_count * chunk_stride;
      target_count *= target[to];
      --to;
    }
    if (target_count != chunk_count) return std::nullopt;
    if (from > 0) {
      chunk_stride = strides[from - 1];
      chunk_count = 1;
      target_count = 1;
    }
  }
  if (to != -1) return std::nullopt;
  return result;
}

Shape InferReshape(ShapeSpan target, int64_t element_count, absl::string_view call) {
  Shape result(target.begin(), target.end());
  int64_t* unknown = nullptr;
  int64_t known = 1;
  for (int64_t& size : result) {
    if (size == -1) {
      if (unknown != nullptr) {
        throw InvalidArgumentError(absl::StrCat(call, ": more than one -1 in shape ",
                                                ToString(target), "; one size can be inferred"));
      }
      unknown = &size;
    }
  }
  if (unknown != nullptr) {
    *unknown = 1;
    known = NumElements(result, call);
    if (known == 0) {
      throw InvalidArgumentError(absl::StrCat(call, ": -1 in shape ", ToString(target),
                                              " could be any size, as another size is 0; name it"));
    }
    *unknown = element_count / known;
  }
  const int64_t count = NumElements(result, call);
  if (count != element_count) {
    throw InvalidArgumentError(absl::StrCat(call, ": shape ", ToString(target), " does not hold ",
                                            element_count, " elements"));
  }
  return result;
}

}  // namespace lockstep
