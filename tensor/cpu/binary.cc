// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic on two tensors, and the backward rows that are arithmetic.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/binary.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

#ifndef LOCKSTEP_TENSOR_CPU_BINARY_ONCE_
#define LOCKSTEP_TENSOR_CPU_BINARY_ONCE_
namespace lockstep::cpu {
enum class BinaryOp {
  kAdd,        // x + y
  kAddScaled,  // x + alpha * y
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kTanhBackward,
  kSigmoidBackward,
  kReluBackward,
};
}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

// Elements of type E, computed in float for the 16-bit ones, which convert on their way in and out.
template <typename E>
void BinaryBlock(BinaryOp op, int64_t n, const E* x, const E* y, E* z, double alpha_value) {
  using T = ComputeType<E>;
  const hn::ScalableTag<T> tag;
  const auto map = [&](const auto& f)
                       HWY_ATTR { Transform(tag, static_cast<size_t>(n), z, f, x, y); };
  const auto zero = hn::Zero(tag);
  const auto one = hn::Set(tag, T{1});
  const auto alpha = hn::Set(tag, static_cast<T>(alpha_value));
  switch (op) {
    case BinaryOp::kAdd:
      return map([](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
    case BinaryOp::kAddScaled:
      return map([=](auto a, auto b) HWY_ATTR { return hn::MulAdd(alpha, b, a); });
    case BinaryOp::kMul:
      return map([](auto a, auto b) HWY_ATTR { return hn::Mul(a, b); });
    case BinaryOp::kDiv:
      return map([](auto a, auto b) HWY_ATTR { return hn::Div(a, b); });
    case BinaryOp::kMaximum:
      // A comparison with NaN is false and selects b; a NaN in a is put back.
      return map([](auto a, auto b) HWY_ATTR {
        return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Gt(a, b), a, b));
      });
    case BinaryOp::kMinimum:
      return map([](auto a, auto b) HWY_ATTR {
        return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Lt(a, b), a, b));
      });
    case BinaryOp::kTanhBackward:
      // (1 - v)(1 + v), because 1 - v^2 loses its digits where v is near 1 or -1.
      return map([=](auto grad, auto v)
                     HWY_ATTR { return hn::Mul(grad, hn::Mul(hn::Sub(one, v), hn::Add(one, v))); });
    case BinaryOp::kSigmoidBackward:
      return map([=](auto grad, auto v)
                     HWY_ATTR { return hn::Mul(grad, hn::Mul(v, hn::Sub(one, v))); });
    case BinaryOp::kReluBackward:
      // Written with <=, so that a NaN passes the gradient on, as in PyTorch.
      return map([=](auto grad, auto v)
                     HWY_ATTR { return hn::IfThenZeroElse(hn::Le(v, zero), grad); });
  }
}

void BinaryFloat(BinaryOp op, int64_t n, const float* x, const float* y, float* z, double alpha) {
  BinaryBlock(op, n, x, y, z, alpha);
}
void BinaryBFloat16(BinaryOp op, int64_t n, const bfloat16* x, const bfloat16* y, bfloat16* z,
                    double alpha) {
  BinaryBlock(op, n, x, y, z, alpha);
}
void BinaryFloat16(BinaryOp op, int64_t n, const float16* x, const float16* y, float16* z,
                   double alpha) {
  BinaryBlock(op, n, x, y, z, alpha);
}
void BinaryDouble(BinaryOp op, int64_t n, const double* x, const double* y, double* z,
                  double alpha) {
  BinaryBlock(op, n, x, y, z, alpha);
}

// z = x + alpha * y, each converted on its way in.
template <typename X, typename Y>
void AddMixed(int64_t n, const X* x, const Y* y, float* z, float alpha_value) {
  const hn::ScalableTag<float> d;
  const auto alpha = hn::Set(d, alpha_value);
  Transform(
      d, static_cast<size_t>(n), z,
      [alpha](auto a, auto b) HWY_ATTR { return hn::MulAdd(alpha, b, a); }, x, y);
}
void AddFloatBFloat16(int64_t n, const float* x, const bfloat16* y, float* z, float alpha) {
  AddMixed(n, x, y, z, alpha);
}
void AddBFloat16Float(int64_t n, const bfloat16* x, const float* y, float* z, float alpha) {
  AddMixed(n, x, y, z, alpha);
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(AddFloatBFloat16);
HWY_EXPORT(AddBFloat16Float);
HWY_EXPORT(BinaryFloat);
HWY_EXPORT(BinaryBFloat16);
HWY_EXPORT(BinaryFloat16);
HWY_EXPORT(BinaryDouble);

// Arithmetic of integers: modulo 2^bits, in the unsigned type of int width or more, because
// overflow of signed types (and of small ones promoted to int) is undefined.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <typename T>
void BinaryIntegers(BinaryOp op, int64_t n, const T* x, const T* y, T* z, int64_t alpha) {
  using W = Wrapping<T>;
  const W scale = static_cast<W>(alpha);
  const auto loop = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) z[i] = static_cast<T>(f(x[i], y[i]));
  };
  const auto wrap = [](T v) { return static_cast<W>(v); };
  switch (op) {
    case BinaryOp::kAdd:
      return loop([&](T a, T b) { return wrap(a) + wrap(b); });
    case BinaryOp::kAddScaled:
      return loop([&](T a, T b) { return wrap(a) + scale * wrap(b); });
    case BinaryOp::kMul:
      return loop([&](T a, T b) { return wrap(a) * wrap(b); });
    case BinaryOp::kDiv:
      break;  // the shape rule gives floating point
    case BinaryOp::kMaximum:
      return loop([](T a, T b) { return a > b ? a : b; });
    case BinaryOp::kMinimum:
      return loop([](T a, T b) { return a < b ? a : b; });
    case BinaryOp::kTanhBackward:
      return loop([&](T g, T v) { return wrap(g) * (1 - wrap(v) * wrap(v)); });
    case BinaryOp::kSigmoidBackward:
      return loop([&](T g, T v) { return wrap(g) * wrap(v) * (1 - wrap(v)); });
    case BinaryOp::kReluBackward:
      return loop([](T g, T v) { return v > 0 ? g : T{0}; });
  }
}

// On bool, + is or and * is and, as in PyTorch.
void BinaryBools(BinaryOp op, int64_t n, const uint8_t* x, const uint8_t* y, uint8_t* z,
                 int64_t alpha) {
  const auto loop = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) z[i] = f(x[i] != 0, y[i] != 0);
  };
  switch (op) {
    case BinaryOp::kAddScaled:
      return loop([&](bool a, bool b) { return a || (b && alpha != 0); });
    case BinaryOp::kMul:
    case BinaryOp::kMinimum:
      return loop([](bool a, bool b) { return a && b; });
    case BinaryOp::kReluBackward:
      return loop([](bool g, bool v) { return g && v; });
    default:
      return loop([](bool a, bool b) { return a || b; });
  }
}

void RunBinary(BinaryOp op, const KernelContext& context, TensorSpan inputs,
               absl::Span<Tensor> outputs, const Scalar& alpha = 1) {
  const DType dtype = outputs[0].dtype();
  const auto body = [&](int64_t, int64_t n, char* const* data) {
    // E: the element type, or the byte of a bool.
    const auto call = [&]<typename E>(TypeTag<E>, auto function) {
      const E *x = In<E>(data[1]), *y = In<E>(data[2]);
      if constexpr (std::is_integral_v<E>) {
        function(op, n, x, y, Out<E>(data[0]), alpha.AsInt64());
      } else {
        function(op, n, x, y, Out<E>(data[0]), alpha.AsDouble());
      }
    };
    switch (dtype) {
      case DType::kFloat32:
        return call(TypeTag<float>{}, HWY_DYNAMIC_DISPATCH(BinaryFloat));
      case DType::kBFloat16:
        return call(TypeTag<bfloat16>{}, HWY_DYNAMIC_DISPATCH(BinaryBFloat16));
      case DType::kFloat16:
        return call(TypeTag<float16>{}, HWY_DYNAMIC_DISPATCH(BinaryFloat16));
      case DType::kFloat64:
        return call(TypeTag<double>{}, HWY_DYNAMIC_DISPATCH(BinaryDouble));
      case DType::kInt64:
        return call(TypeTag<int64_t>{}, BinaryIntegers<int64_t>);
      case DType::kInt32:
        return call(TypeTag<int32_t>{}, BinaryIntegers<int32_t>);
      case DType::kUInt8:
        return call(TypeTag<uint8_t>{}, BinaryIntegers<uint8_t>);
      case DType::kBool:
        return call(TypeTag<uint8_t>{}, BinaryBools);
    }
  };
  RunStridedLoop(context, outputs, inputs, body, {.raw = true});
}

// Operands of different dtypes, to float32: bfloat16 in one pass; float16 by way of blocks in the
// first-level cache.
void RunMixedAdd(const KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                 float alpha) {
  const DType x_dtype = inputs[0].dtype(), y_dtype = inputs[1].dtype();
  if (x_dtype == DType::kFloat16 || y_dtype == DType::kFloat16) {
    const auto body = [&](int64_t, int64_t n, char* const* data) {
      HWY_DYNAMIC_DISPATCH(BinaryFloat)
      (BinaryOp::kAddScaled, n, In<float>(data[1]), In<float>(data[2]), Out<float>(data[0]), alpha);
    };
    return RunStridedLoop(context, outputs, inputs, body, {.inputs_as = DType::kFloat32});
  }
  const auto body = [&](int64_t, int64_t n, char* const* data) {
    if (x_dtype == DType::kFloat32) {
      HWY_DYNAMIC_DISPATCH(AddFloatBFloat16)
      (n, In<float>(data[1]), In<bfloat16>(data[2]), Out<float>(data[0]), alpha);
    } else {
      HWY_DYNAMIC_DISPATCH(AddBFloat16Float)
      (n, In<bfloat16>(data[1]), In<float>(data[2]), Out<float>(data[0]), alpha);
    }
  };
  RunStridedLoop(context, outputs, inputs, body, {.raw = true});
}

}  // namespace

void AddKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
               const Scalars& scalars, const Attributes&) {
  if (inputs[0].dtype() != inputs[1].dtype()) {
    return RunMixedAdd(context, inputs, outputs, static_cast<float>(scalars[0].AsDouble()));
  }
  const bool plain = scalars[0].AsDouble() == 1.0;
  RunBinary(plain ? BinaryOp::kAdd : BinaryOp::kAddScaled, context, inputs, outputs, scalars[0]);
}

#define LOCKSTEP_BINARY_KERNEL(name)                                                       \
  void name##Kernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs, \
                    const Scalars&, const Attributes&) {                                   \
    RunBinary(BinaryOp::k##name, context, inputs, outputs);                                \
  }
LOCKSTEP_BINARY_KERNEL(Mul)
LOCKSTEP_BINARY_KERNEL(Div)
LOCKSTEP_BINARY_KERNEL(Maximum)
LOCKSTEP_BINARY_KERNEL(Minimum)
LOCKSTEP_BINARY_KERNEL(TanhBackward)
LOCKSTEP_BINARY_KERNEL(SigmoidBackward)
LOCKSTEP_BINARY_KERNEL(ReluBackward)
#undef LOCKSTEP_BINARY_KERNEL

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
