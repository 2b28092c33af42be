// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Powers. Exponents that have a cheaper exact form take it, as in PyTorch; others go through the C
// library. Integers are raised by squaring and wrap around; a negative exponent gives the integer
// part of the quotient (0 unless the base is 1 or -1).
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {
namespace {

constexpr StridedLoopOptions kPowOptions = {.chunk = kLoopChunk / 4};

template <typename T>
T IntegerPower(T base, T exponent) {
  if constexpr (std::is_signed_v<T>) {
    if (exponent < 0) {
      if (base == 1) return 1;
      if (base == -1) return exponent % 2 == 0 ? 1 : -1;
      return 0;
    }
  }
  uint64_t result = 1;
  uint64_t factor = static_cast<uint64_t>(base);
  for (uint64_t rest = static_cast<uint64_t>(exponent); rest > 0; rest >>= 1) {
    if ((rest & 1) != 0) result *= factor;
    factor *= factor;
  }
  return static_cast<T>(result);
}

template <typename T>
T Power(T base, T exponent) {
  if constexpr (std::is_integral_v<T>) {
    return IntegerPower(base, exponent);
  } else {
    return std::pow(base, exponent);
  }
}

template <typename Visitor>
void VisitNumber(DType dtype, Visitor&& visitor) {
  switch (ComputeDType(dtype)) {
    case DType::kFloat32:
      return visitor(TypeTag<float>{});
    case DType::kFloat64:
      return visitor(TypeTag<double>{});
    case DType::kInt64:
      return visitor(TypeTag<int64_t>{});
    case DType::kInt32:
      return visitor(TypeTag<int32_t>{});
    case DType::kUInt8:
      return visitor(TypeTag<uint8_t>{});
    default:
      throw InternalError("Pow: bool");
  }
}

template <typename T, typename F>
void Map(int64_t n, const T* x, T* y, F f) {
  for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
}

template <typename T>
void PowerBlock(int64_t n, const T* x, const Scalar& exponent, T* y) {
  if constexpr (std::is_integral_v<T>) {
    const int64_t e = exponent.AsInt64();
    // The base is widened, not the exponent cut: an exponent need not fit T.
    Map(n, x, y, [=](T v) { return static_cast<T>(IntegerPower<int64_t>(v, e)); });
  } else {
    const double e = exponent.AsDouble();
    const T one = 1;
    if (e == 2) return Map(n, x, y, [](T v) { return v * v; });
    if (e == 3) return Map(n, x, y, [](T v) { return v * v * v; });
    if (e == 0.5) return Map(n, x, y, [](T v) { return std::sqrt(v); });
    if (e == -0.5) return Map(n, x, y, [=](T v) { return one / std::sqrt(v); });
    if (e == -1) return Map(n, x, y, [=](T v) { return one / v; });
    if (e == -2) return Map(n, x, y, [=](T v) { return one / (v * v); });
    if (e == 1) return Map(n, x, y, [](T v) { return v; });
    Map(n, x, y, [power = static_cast<T>(e)](T v) { return std::pow(v, power); });
  }
}

}  // namespace

void PowKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
               const Scalars&, const Attributes&) {
  VisitNumber(outputs[0].dtype(), [&]<typename T>(TypeTag<T>) {
    RunStridedLoop(
        context, outputs, inputs,
        [&](int64_t, int64_t n, char* const* data) {
          const T* x = In<T>(data[1]);
          const T* y = In<T>(data[2]);
          T* z = Out<T>(data[0]);
          for (int64_t i = 0; i < n; ++i) z[i] = Power(x[i], y[i]);
        },
        kPowOptions);
  });
}

void PowScalarKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                     const Scalars& scalars, const Attributes&) {
  VisitNumber(outputs[0].dtype(), [&]<typename T>(TypeTag<T>) {
    RunStridedLoop(
        context, outputs, inputs,
        [&](int64_t, int64_t n, char* const* data) {
          PowerBlock(n, In<T>(data[1]), scalars[0], Out<T>(data[0]));
        },
        kPowOptions);
  });
}

}  // namespace lockstep::cpu
