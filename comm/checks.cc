// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/checks.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/tensor_memory.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::comm {
namespace {

bool SameView(const Tensor& a, const Tensor& b) {
  return a.IsSame(b) ||
         (RangeOf(a) == RangeOf(b) && a.shape() == b.shape() && a.strides() == b.strides());
}

[[noreturn]] void ThrowOverlap(absl::string_view call, absl::string_view allowed) {
  throw lockstep::InvalidArgumentError(
      absl::StrCat(call, ": input and output overlap; ", allowed, "share no memory"));
}

}  // namespace

void CheckDefined(absl::string_view call, absl::string_view which, const Tensor& tensor) {
  if (!tensor.defined()) {
    throw lockstep::InvalidArgumentError(
        absl::StrCat(call, ": ", which, " is an undefined tensor"));
  }
}

void CheckUndefined(absl::string_view call, absl::string_view which, const Tensor& tensor, int rank,
                    int root) {
  if (!tensor.defined()) return;
  throw lockstep::InvalidArgumentError(
      absl::StrCat(call, ": rank ", rank, " passes ", which, " ", tensor.DebugString(),
                   ", which only the root, rank ", root, ", has: pass Tensor()"));
}

void CheckWritable(absl::string_view call, const Tensor& tensor) {
  if (OverlapsItself(tensor)) {
    throw lockstep::InvalidArgumentError(absl::StrCat(
        call, ": elements of the output ", tensor.DebugString(), " with strides ",
        ToString(tensor.strides()), " share memory (an expanded tensor?): pass its Clone()"));
  }
}

void CheckPair(absl::string_view call, const Tensor& input, const Tensor& output) {
  if (input.dtype() != output.dtype()) {
    throw lockstep::InvalidArgumentError(absl::StrCat(call, ": input is ", DTypeName(input.dtype()),
                                                      " and output is ", DTypeName(output.dtype()),
                                                      ": cast one of them first"));
  }
}

void CheckSameCount(absl::string_view call, const Tensor& input, const Tensor& output) {
  if (input.numel() != output.numel()) {
    throw lockstep::InvalidArgumentError(absl::StrCat(call, ": input ", ToString(input.shape()),
                                                      " and output ", ToString(output.shape()),
                                                      " differ in their number of elements"));
  }
}

void CheckInPlace(absl::string_view call, const Tensor& input, const Tensor& output) {
  if (!SameView(input, output) && RangeOf(input).Overlaps(RangeOf(output))) {
    ThrowOverlap(call, "they may be the same tensor, or ");
  }
}

void CheckPartOverlap(absl::string_view call, const Tensor& part, const Tensor& whole, int rank,
                      int64_t begin) {
  const AddressRange part_range = RangeOf(part);
  const AddressRange whole_range = RangeOf(whole);
  if (!part_range.Overlaps(whole_range)) return;
  const uintptr_t expected =
      whole_range.begin + static_cast<uintptr_t>(begin * ItemSize(part.dtype()));
  if (!part.is_contiguous() || !whole.is_contiguous() || part_range.begin != expected) {
    ThrowOverlap(call, absl::StrCat("the smaller one may be part ", rank,
                                    " of the larger one, both row-major, or "));
  }
}

void CheckNoOverlap(absl::string_view call, const Tensor& input, const Tensor& output) {
  if (RangeOf(input).Overlaps(RangeOf(output))) ThrowOverlap(call, "they must ");
}

void CheckCounts(absl::string_view call, absl::string_view name, const std::vector<int64_t>& counts,
                 int size, int64_t total) {
  if (counts.size() != static_cast<size_t>(size)) {
    throw lockstep::InvalidArgumentError(
        absl::StrCat(call, ": ", name, " has ", counts.size(), " numbers for ", size, " ranks"));
  }
  int64_t sum = 0;
  for (const int64_t count : counts) {
    if (count < 0 || count > std::numeric_limits<int64_t>::max() - sum) {
      throw lockstep::InvalidArgumentError(
          absl::StrCat(call, ": ", name, " has ", count, ": counts are numbers of elements"));
    }
    sum += count;
  }
  if (total >= 0 && sum != total) {
    throw lockstep::InvalidArgumentError(
        absl::StrCat(call, ": ", name, " [", absl::StrJoin(counts, ", "), "] add up to ", sum,
                     ", not to the ", total, " elements of the tensor"));
  }
}

}  // namespace lockstep::comm
