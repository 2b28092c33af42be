// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Comparisons and logic: ops whose result is bool.
#include <cmath>
#include <cstdint>

#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {
namespace {

// Calls visitor with the C++ type that a body sees for `dtype`: float32 for 16-bit floats, the byte
// for bool.
template <typename Visitor>
void VisitCompute(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::kFloat64:
      return visitor(TypeTag<double>{});
    case DType::kInt64:
      return visitor(TypeTag<int64_t>{});
    case DType::kInt32:
      return visitor(TypeTag<int32_t>{});
    case DType::kUInt8:
    case DType::kBool:
      return visitor(TypeTag<uint8_t>{});
    default:
      return visitor(TypeTag<float>{});
  }
}

template <typename Predicate>
void RunPredicate2(const KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                   Predicate predicate) {
  VisitCompute(inputs[0].dtype(), [&]<typename T>(TypeTag<T>) {
    RunStridedLoop(context, outputs, inputs, [&](int64_t, int64_t n, char* const* data) {
      const T* x = In<T>(data[1]);
      const T* y = In<T>(data[2]);
      uint8_t* z = Out<uint8_t>(data[0]);
      for (int64_t i = 0; i < n; ++i) z[i] = predicate(x[i], y[i]);
    });
  });
}

template <typename Predicate>
void RunPredicate1(const KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                   Predicate predicate) {
  VisitCompute(inputs[0].dtype(), [&]<typename T>(TypeTag<T>) {
    RunStridedLoop(context, outputs, inputs, [&](int64_t, int64_t n, char* const* data) {
      const T* x = In<T>(data[1]);
      uint8_t* z = Out<uint8_t>(data[0]);
      for (int64_t i = 0; i < n; ++i) z[i] = predicate(x[i]);
    });
  });
}

}  // namespace

#define LOCKSTEP_COMPARE_KERNEL(name, expression)                                          \
  void name##Kernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs, \
                    const Scalars&, const Attributes&) {                                   \
    RunPredicate2(context, inputs, outputs, [](auto x, auto y) { return expression; });    \
  }
LOCKSTEP_COMPARE_KERNEL(Equal, x == y)
LOCKSTEP_COMPARE_KERNEL(NotEqual, x != y)
LOCKSTEP_COMPARE_KERNEL(Less, x < y)
LOCKSTEP_COMPARE_KERNEL(LessEqual, x <= y)
LOCKSTEP_COMPARE_KERNEL(Greater, x > y)
LOCKSTEP_COMPARE_KERNEL(GreaterEqual, x >= y)
#undef LOCKSTEP_COMPARE_KERNEL

// The operands of logic may differ in dtype: each is turned into bool first.
#define LOCKSTEP_LOGIC_KERNEL(name, op)                                                         \
  void name##Kernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,      \
                    const Scalars&, const Attributes&) {                                        \
    RunStridedLoop(context, outputs, inputs,                                                    \
                   [](int64_t, int64_t n, char* const* data) {                                  \
                     const uint8_t* x = In<uint8_t>(data[1]);                                   \
                     const uint8_t* y = In<uint8_t>(data[2]);                                   \
                     uint8_t* z = Out<uint8_t>(data[0]);                                        \
                     for (int64_t i = 0; i < n; ++i) z[i] = static_cast<uint8_t>(x[i] op y[i]); \
                   },                                                                           \
                   {.inputs_as = DType::kBool});                                                \
  }
LOCKSTEP_LOGIC_KERNEL(LogicalAnd, &)
LOCKSTEP_LOGIC_KERNEL(LogicalOr, |)
#undef LOCKSTEP_LOGIC_KERNEL

void LogicalNotKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                      const Scalars&, const Attributes&) {
  RunPredicate1(context, inputs, outputs, [](auto x) { return x == 0; });
}

void IsFiniteKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                    const Scalars&, const Attributes&) {
  // x - x is NaN for infinities and NaN, 0 otherwise (integers included).
  RunPredicate1(context, inputs, outputs, [](auto x) { return x - x == 0; });
}

}  // namespace lockstep::cpu
