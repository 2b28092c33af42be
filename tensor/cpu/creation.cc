// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Constants and ranges.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/tensor/cpu/convert.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {
namespace {

// The bits of `value` as an element of `dtype`, in the low bytes.
uint64_t ElementBits(const Scalar& value, DType dtype) {
  uint64_t bits = 0;
  if (value.kind() == Scalar::Kind::kDouble) {
    const double number = value.AsDouble();
    ConvertElements(DType::kFloat64, dtype, 1, &number, &bits);
  } else {
    const int64_t number = value.AsInt64();
    ConvertElements(DType::kInt64, dtype, 1, &number, &bits);
  }
  return bits;
}

template <typename U>
void FillBlock(int64_t n, uint64_t bits, char* out) {
  std::fill_n(Out<U>(out), n, static_cast<U>(bits));
}

void FillTensor(const KernelContext& context, absl::Span<Tensor> outputs, const Scalar& value) {
  const DType dtype = outputs[0].dtype();
  const uint64_t bits = ElementBits(value, dtype);
  const int64_t item_size = ItemSize(dtype);
  RunStridedLoop(context, outputs, {},
                 [&](int64_t, int64_t n, char* const* data) {
                   if (bits == 0) {
                     std::memset(data[0], 0, static_cast<size_t>(n * item_size));
                     return;
                   }
                   switch (item_size) {
                     case 1:
                       return FillBlock<uint8_t>(n, bits, data[0]);
                     case 2:
                       return FillBlock<uint16_t>(n, bits, data[0]);
                     case 4:
                       return FillBlock<uint32_t>(n, bits, data[0]);
                     default:
                       return FillBlock<uint64_t>(n, bits, data[0]);
                   }
                 },
                 {.raw = true});
}

// Element i is start + i * step, with no error that grows along the way: modulo 2^64 when all are
// integers, else in double and rounded once.
template <typename T>
void ArangeBlock(int64_t index, int64_t n, const Scalar& start, const Scalar& step, T* out) {
  const bool fractions =
      start.kind() == Scalar::Kind::kDouble || step.kind() == Scalar::Kind::kDouble;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t position = index + i;
    if (std::is_integral_v<T> && !fractions) {
      out[i] = static_cast<T>(start.AsUInt64() + static_cast<uint64_t>(position) * step.AsUInt64());
      continue;
    }
    const double value = start.AsDouble() + static_cast<double>(position) * step.AsDouble();
    if constexpr (std::is_integral_v<T>) {
      out[i] = static_cast<T>(Scalar(value).AsInt64());
    } else {
      out[i] = static_cast<T>(value);
    }
  }
}

}  // namespace

void FullKernel(KernelContext& context, TensorSpan, absl::Span<Tensor> outputs,
                const Scalars& scalars, const Attributes&) {
  FillTensor(context, outputs, scalars[0]);
}

void FillKernel(KernelContext& context, TensorSpan, absl::Span<Tensor> outputs,
                const Scalars& scalars, const Attributes&) {
  FillTensor(context, outputs, scalars[0]);
}

void ArangeKernel(KernelContext& context, TensorSpan, absl::Span<Tensor> outputs,
                  const Scalars& scalars, const Attributes&) {
  const DType dtype = ComputeDType(outputs[0].dtype());
  RunStridedLoop(context, outputs, {},
                 [&](int64_t index, int64_t n, char* const* data) {
                   VisitDType(dtype, [&]<typename T>(TypeTag<T>) {
                     if constexpr (!std::is_same_v<T, bfloat16> && !std::is_same_v<T, float16>) {
                       ArangeBlock(index, n, scalars[0], scalars[1], Out<T>(data[0]));
                     }
                   });
                 },
                 {.logical_order = true});
}

}  // namespace lockstep::cpu
