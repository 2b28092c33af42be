// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/shape_rules_util.h"

#include <algorithm>

namespace lockstep {
namespace rules {
namespace {

std::string ShapeText(const Tensor& tensor) { return ToString(tensor.shape()); }

}  // namespace

const std::string& OpName(const OpCall& call) { return GetOpInfo(call.op).name; }

std::string InputName(const OpCall& call, size_t index) {
  const OpInfo& info = GetOpInfo(call.op);
  size_t lists = 0;
  for (const OpInfo::Input& input : info.inputs) lists += input.list ? 1 : 0;
  if (lists == 0) {
    return index < info.inputs.size() ? info.inputs[index].name : absl::StrCat("input ", index);
  }
  const size_t singles = info.inputs.size() - lists;
  const size_t length = call.inputs.size() >= singles ? (call.inputs.size() - singles) / lists : 0;
  size_t begin = 0;
  for (const OpInfo::Input& input : info.inputs) {
    const size_t size = input.list ? length : 1;
    if (index < begin + size) {
      return input.list ? absl::StrCat(input.name, "[", index - begin, "]") : input.name;
    }
    begin += size;
  }
  return absl::StrCat("input ", index);
}

void Refuse(const OpCall& call, absl::string_view message) {
  throw InvalidArgumentError(absl::StrCat(OpName(call), ": ", message));
}

void RefuseOperands(const OpCall& call, size_t input_count, size_t scalar_count,
                    uint32_t optional) {
  if (call.inputs.size() != input_count) {
    Refuse(call, call.inputs.size(), " inputs given, ", input_count, " needed");
  }
  if (call.scalars.size() != scalar_count) {
    Refuse(call, call.scalars.size(), " scalars given, ", scalar_count, " needed");
  }
  for (size_t i = 0; i < input_count; ++i) {
    if (!call.inputs[i].defined() && ((optional >> i) & 1) == 0) {
      Refuse(call, InputName(call, i), " is undefined; pass a tensor");
    }
  }
  throw InternalError(absl::StrCat(OpName(call), ": refused valid operands"));
}

size_t RequireLists(const OpCall& call, size_t list_count, size_t tail, size_t scalar_count,
                    size_t optional_lists) {
  if (call.scalars.size() != scalar_count)
    RefuseOperands(call, call.inputs.size(), scalar_count, 0);
  if (call.inputs.size() < tail || (call.inputs.size() - tail) % list_count != 0) {
    Refuse(call, call.inputs.size(), " inputs given; ", list_count, " lists of one length",
           tail == 0 ? "" : absl::StrCat(" and ", tail, " more"), " are needed");
  }
  const size_t length = (call.inputs.size() - tail) / list_count;
  const size_t lists_end = list_count * length;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (i >= lists_end - optional_lists * length && i < lists_end) continue;
    if (!call.inputs[i].defined()) Refuse(call, InputName(call, i), " is undefined; pass a tensor");
  }
  return length;
}

void RefuseDType(const OpCall& call, size_t index, absl::string_view expected) {
  Refuse(call, InputName(call, index), " has dtype ", DTypeName(call.inputs[index].dtype()),
         "; it must have ", expected == "bool" ? "dtype " : "", expected, " (cast it with To)");
}

void RequireDType(const OpCall& call, size_t index, DType dtype) {
  if (call.inputs[index].dtype() != dtype) {
    RefuseDType(call, index, absl::StrCat("dtype ", DTypeName(dtype)));
  }
}

void RefuseDTypePair(const OpCall& call, size_t a, size_t b) {
  Refuse(call, InputName(call, a), " has dtype ", DTypeName(call.inputs[a].dtype()), " and ",
         InputName(call, b), " has ", DTypeName(call.inputs[b].dtype()),
         "; they must be the same (cast one with To)");
}

void RequireShape(const OpCall& call, size_t index, ShapeSpan shape, absl::string_view why) {
  if (ShapeSpan(call.inputs[index].shape()) != shape) {
    Refuse(call, InputName(call, index), " has shape ", ShapeText(call.inputs[index]), "; ",
           ToString(shape), " is needed, ", why);
  }
}

void RequireRank(const OpCall& call, size_t index, int64_t minimum, int64_t maximum) {
  const int64_t rank = call.inputs[index].rank();
  if (rank >= minimum && rank <= maximum) return;
  const std::string expected = minimum == maximum     ? absl::StrCat(minimum)
                               : maximum == INT64_MAX ? absl::StrCat("at least ", minimum)
                                                      : absl::StrCat(minimum, " to ", maximum);
  Refuse(call, InputName(call, index), " has shape ", ShapeText(call.inputs[index]), " with ", rank,
         " dimensions; it must have ", expected);
}

void RequireDim(const OpCall& call, size_t index, int64_t dim) {
  const int64_t rank = std::max<int64_t>(call.inputs[index].rank(), 1);
  if (dim < 0 || dim >= rank) {
    Refuse(call, "dimension ", dim, " is not in [0, ", rank, ") for ", InputName(call, index),
           " of shape ", ShapeText(call.inputs[index]));
  }
}

void RequireWritable(const OpCall& call, size_t index) {
  const Tensor& tensor = call.inputs[index];
  if (tensor.is_contiguous()) return;
  // Views share elements only where an Expand gave a stride of 0.
  for (size_t d = 0; d < tensor.shape().size(); ++d) {
    if (tensor.strides()[d] != 0 || tensor.shape()[d] <= 1) continue;
    Refuse(call, InputName(call, index), " of shape ", ShapeText(tensor), " has strides ",
           ToString(tensor.strides()),
           ": several elements share one place in memory and cannot be written; write to a Clone, "
           "or to the tensor that was expanded");
  }
}

void RefuseSize(const OpCall& call, ShapeSpan shape, DType dtype) {
  Refuse(call, "a result of shape ", ToString(shape), " and dtype ", DTypeName(dtype),
         " has more bytes than an int64 can count");
}

}  // namespace rules
}  // namespace lockstep
