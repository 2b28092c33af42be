// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the shape rules share: checks that name the op and the operand, and making specs. Private to
// shape_rules_*.cc.
//
// The checks cost a few comparisons when they pass (they are part of the dispatch budget); names
// and texts are looked up only for a message.
#ifndef LOCKSTEP_TENSOR_SHAPE_RULES_UTIL_H_
#define LOCKSTEP_TENSOR_SHAPE_RULES_UTIL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/shape_rules.h"

namespace lockstep {
namespace rules {

const std::string& OpName(const OpCall& call);
// Name of input `index` in the op table; "x[3]" in a list.
std::string InputName(const OpCall& call, size_t index);

// Throws InvalidArgument "Name: pieces".
[[noreturn]] void Refuse(const OpCall& call, absl::string_view message);
template <typename... Pieces>
[[noreturn]] void Refuse(const OpCall& call, const Pieces&... pieces) {
  Refuse(call, absl::string_view(absl::StrCat(pieces...)));
}

[[noreturn]] void RefuseOperands(const OpCall& call, size_t input_count, size_t scalar_count,
                                 uint32_t optional);

// The call has these counts, and all inputs are defined, but those with a bit in `optional`.
inline void RequireOperands(const OpCall& call, size_t input_count, size_t scalar_count = 0,
                            uint32_t optional = 0) {
  bool valid = call.inputs.size() == input_count && call.scalars.size() == scalar_count;
  for (size_t i = 0; valid && i < input_count; ++i) {
    valid = call.inputs[i].defined() || ((optional >> i) & 1) != 0;
  }
  if (!valid) RefuseOperands(call, input_count, scalar_count, optional);
}

// For ops over lists: `list_count` lists of one length and then `tail` single inputs, all defined
// (but for the tensors of the last `optional_lists` lists). Returns the length.
size_t RequireLists(const OpCall& call, size_t list_count, size_t tail, size_t scalar_count,
                    size_t optional_lists = 0);

[[noreturn]] void RefuseDType(const OpCall& call, size_t index, absl::string_view expected);

inline void RequireFloat(const OpCall& call, size_t index) {
  if (!IsFloatingPoint(call.inputs[index].dtype())) {
    RefuseDType(call, index, "a floating-point dtype");
  }
}
inline void RequireNumber(const OpCall& call, size_t index) {
  if (call.inputs[index].dtype() == DType::kBool) RefuseDType(call, index, "a number");
}
inline void RequireBool(const OpCall& call, size_t index) {
  if (call.inputs[index].dtype() != DType::kBool) RefuseDType(call, index, "bool");
}
// int64 or int32.
inline void RequireIndices(const OpCall& call, size_t index) {
  const DType dtype = call.inputs[index].dtype();
  if (dtype != DType::kInt64 && dtype != DType::kInt32) {
    RefuseDType(call, index, "int64 or int32");
  }
}
void RequireDType(const OpCall& call, size_t index, DType dtype);

[[noreturn]] void RefuseDTypePair(const OpCall& call, size_t a, size_t b);
inline void RequireSameDType(const OpCall& call, size_t a, size_t b) {
  if (call.inputs[a].dtype() != call.inputs[b].dtype()) RefuseDTypePair(call, a, b);
}

// "Name: x has shape [..]; [..] is needed, `why`".
void RequireShape(const OpCall& call, size_t index, ShapeSpan shape, absl::string_view why);
inline void RequireSameShape(const OpCall& call, size_t a, size_t b) {
  if (!SameSizes(call.inputs[a].shape(), call.inputs[b].shape())) {
    RequireShape(call, b, call.inputs[a].shape(), absl::StrCat("as ", InputName(call, a), " has"));
  }
}
void RequireRank(const OpCall& call, size_t index, int64_t minimum, int64_t maximum);

// `dim` of input `index` is normalised; a zero-dimensional input has dimension 0.
void RequireDim(const OpCall& call, size_t index, int64_t dim);

// No two elements of the input share memory, as they do in an expanded tensor.
void RequireWritable(const OpCall& call, size_t index);

// float32, or float64 for float64: what statistics beside a result are kept in.
inline DType StatisticsDType(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

[[noreturn]] void RefuseSize(const OpCall& call, ShapeSpan shape, DType dtype);

// Appends a row-major output. Its bytes can be counted in an int64.
inline TensorSpec& Emit(const OpCall& call, SpecList& outputs, ShapeSpan shape, DType dtype) {
  int64_t bytes = ItemSize(dtype);
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) RefuseSize(call, shape, dtype);
  }
  TensorSpec& spec = outputs.emplace_back();
  spec.shape.assign(shape.begin(), shape.end());
  spec.dtype = dtype;
  return spec;
}

// Appends a view of `x`.
inline TensorSpec& EmitView(SpecList& outputs, const Tensor& x, Shape shape, Strides strides) {
  TensorSpec& spec = outputs.emplace_back();
  spec.shape = std::move(shape);
  spec.dtype = x.dtype();
  spec.strides = std::move(strides);
  spec.offset = x.offset();
  return spec;
}

}  // namespace rules
}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_SHAPE_RULES_UTIL_H_
