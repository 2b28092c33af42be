// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ops on one tensor that need no transcendental function.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/unary_basic.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

#ifndef LOCKSTEP_TENSOR_CPU_UNARY_BASIC_ONCE_
#define LOCKSTEP_TENSOR_CPU_UNARY_BASIC_ONCE_
namespace lockstep::cpu {
enum class UnaryOp {
  kNeg,
  kAbs,
  kSign,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kRelu,
  kClamp,
  kAddScalar,
  kMulScalar,
  kDivScalar,
};
}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

// `first` and `second` are the op's scalars. 16-bit elements convert to float on their way in.
template <typename E>
void UnaryBlock(UnaryOp op, int64_t n, const E* x, E* y, double first, double second) {
  using T = ComputeType<E>;
  const hn::ScalableTag<T> tag;
  const auto map = [&](const auto& f) HWY_ATTR { Transform(tag, static_cast<size_t>(n), y, f, x); };
  const auto zero = hn::Zero(tag);
  const auto one = hn::Set(tag, T{1});
  const auto a = hn::Set(tag, static_cast<T>(first));
  const auto b = hn::Set(tag, static_cast<T>(second));
  switch (op) {
    case UnaryOp::kNeg:
      return map([](auto v) HWY_ATTR { return hn::Neg(v); });
    case UnaryOp::kAbs:
      return map([](auto v) HWY_ATTR { return hn::Abs(v); });
    case UnaryOp::kSign:
      return map([=](auto v) HWY_ATTR {
        const auto positive = hn::IfThenElseZero(hn::Gt(v, zero), one);
        return hn::Sub(positive, hn::IfThenElseZero(hn::Lt(v, zero), one));
      });
    case UnaryOp::kSqrt:
      return map([](auto v) HWY_ATTR { return hn::Sqrt(v); });
    case UnaryOp::kRsqrt:
      return map([=](auto v) HWY_ATTR { return hn::Div(one, hn::Sqrt(v)); });
    case UnaryOp::kReciprocal:
      return map([=](auto v) HWY_ATTR { return hn::Div(one, v); });
    case UnaryOp::kRelu:
      // Written with <, which is false for NaN and for -0: they stay, as in PyTorch.
      return map([=](auto v) HWY_ATTR { return hn::IfThenZeroElse(hn::Lt(v, zero), v); });
    case UnaryOp::kClamp:
      return map([=](auto v) HWY_ATTR {
        const auto raised = hn::IfThenElse(hn::Lt(v, a), a, v);
        return hn::IfThenElse(hn::Gt(raised, b), b, raised);
      });
    case UnaryOp::kAddScalar:
      return map([=](auto v) HWY_ATTR { return hn::Add(v, a); });
    case UnaryOp::kMulScalar:
      return map([=](auto v) HWY_ATTR { return hn::Mul(v, a); });
    case UnaryOp::kDivScalar:
      return map([=](auto v) HWY_ATTR { return hn::Div(v, a); });
  }
}

void UnaryFloat(UnaryOp op, int64_t n, const float* x, float* y, double first, double second) {
  UnaryBlock(op, n, x, y, first, second);
}
void UnaryBFloat16(UnaryOp op, int64_t n, const bfloat16* x, bfloat16* y, double first,
                   double second) {
  UnaryBlock(op, n, x, y, first, second);
}
void UnaryFloat16(UnaryOp op, int64_t n, const float16* x, float16* y, double first,
                  double second) {
  UnaryBlock(op, n, x, y, first, second);
}
void UnaryDouble(UnaryOp op, int64_t n, const double* x, double* y, double first, double second) {
  UnaryBlock(op, n, x, y, first, second);
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(UnaryFloat);
HWY_EXPORT(UnaryBFloat16);
HWY_EXPORT(UnaryFloat16);
HWY_EXPORT(UnaryDouble);

// Integers wrap around: arithmetic in an unsigned type of int width or more.
template <typename T>
void UnaryIntegers(UnaryOp op, int64_t n, const T* x, T* y, const Scalar& first,
                   const Scalar& second) {
  using W = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const W operand = static_cast<W>(first.AsInt64());
  const auto loop = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(f(x[i]));
  };
  const auto bound = [](const Scalar& s) {
    return static_cast<T>(std::clamp<int64_t>(s.AsInt64(), std::numeric_limits<T>::min(),
                                              std::numeric_limits<T>::max()));
  };
  switch (op) {
    case UnaryOp::kNeg:
      return loop([](T v) { return W{0} - static_cast<W>(v); });
    case UnaryOp::kAbs:
      return loop([](T v) { return v < T{0} ? W{0} - static_cast<W>(v) : static_cast<W>(v); });
    case UnaryOp::kSign:
      return loop([](T v) { return (v > T{0}) - (v < T{0}); });
    case UnaryOp::kRelu:
      return loop([](T v) { return v > T{0} ? v : T{0}; });
    case UnaryOp::kClamp:
      return loop([low = bound(first), high = bound(second)](T v) {
        return std::min(std::max(v, low), high);
      });
    case UnaryOp::kAddScalar:
      return loop([=](T v) { return static_cast<W>(v) + operand; });
    case UnaryOp::kMulScalar:
      return loop([=](T v) { return static_cast<W>(v) * operand; });
    case UnaryOp::kSqrt:
    case UnaryOp::kRsqrt:
    case UnaryOp::kReciprocal:
    case UnaryOp::kDivScalar:
      break;
  }
  throw InternalError("floating-point op on integers");
}

void UnaryBools(UnaryOp op, int64_t n, const uint8_t* x, uint8_t* y, const Scalar& first,
                const Scalar& second) {
  const auto loop = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) y[i] = f(x[i] != 0);
  };
  switch (op) {
    case UnaryOp::kAddScalar:
      return loop([a = first.AsBool()](bool v) { return v || a; });
    case UnaryOp::kMulScalar:
      return loop([a = first.AsBool()](bool v) { return v && a; });
    case UnaryOp::kClamp:
      return loop(
          [a = first.AsDouble() > 0, b = second.AsDouble() >= 1](bool v) { return (v || a) && b; });
    default:
      return loop([](bool v) { return v; });  // Abs, Sign, Relu
  }
}

void RunUnary(UnaryOp op, const KernelContext& context, TensorSpan inputs,
              absl::Span<Tensor> outputs, const Scalars& scalars) {
  const DType dtype = outputs[0].dtype();
  const Scalar first = !scalars.empty() ? scalars[0] : Scalar();
  const Scalar second = scalars.size() > 1 ? scalars[1] : Scalar();
  const auto body = [&](int64_t, int64_t n, char* const* data) {
    const auto floating = [&]<typename E>(TypeTag<E>, auto function) {
      function(op, n, In<E>(data[1]), Out<E>(data[0]), first.AsDouble(), second.AsDouble());
    };
    const auto whole = [&]<typename E>(TypeTag<E>, auto function) {
      function(op, n, In<E>(data[1]), Out<E>(data[0]), first, second);
    };
    switch (dtype) {
      case DType::kFloat32:
        return floating(TypeTag<float>{}, HWY_DYNAMIC_DISPATCH(UnaryFloat));
      case DType::kBFloat16:
        return floating(TypeTag<bfloat16>{}, HWY_DYNAMIC_DISPATCH(UnaryBFloat16));
      case DType::kFloat16:
        return floating(TypeTag<float16>{}, HWY_DYNAMIC_DISPATCH(UnaryFloat16));
      case DType::kFloat64:
        return floating(TypeTag<double>{}, HWY_DYNAMIC_DISPATCH(UnaryDouble));
      case DType::kInt64:
        return whole(TypeTag<int64_t>{}, UnaryIntegers<int64_t>);
      case DType::kInt32:
        return whole(TypeTag<int32_t>{}, UnaryIntegers<int32_t>);
      case DType::kUInt8:
        return whole(TypeTag<uint8_t>{}, UnaryIntegers<uint8_t>);
      case DType::kBool:
        return whole(TypeTag<uint8_t>{}, UnaryBools);
    }
  };
  RunStridedLoop(context, outputs, inputs, body, {.raw = true});
}

}  // namespace

#define LOCKSTEP_UNARY_KERNEL(name)                                                        \
  void name##Kernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs, \
                    const Scalars& scalars, const Attributes&) {                           \
    RunUnary(UnaryOp::k##name, context, inputs, outputs, scalars);                         \
  }
LOCKSTEP_UNARY_KERNEL(Neg)
LOCKSTEP_UNARY_KERNEL(Abs)
LOCKSTEP_UNARY_KERNEL(Sign)
LOCKSTEP_UNARY_KERNEL(Sqrt)
LOCKSTEP_UNARY_KERNEL(Rsqrt)
LOCKSTEP_UNARY_KERNEL(Reciprocal)
LOCKSTEP_UNARY_KERNEL(Relu)
LOCKSTEP_UNARY_KERNEL(Clamp)
LOCKSTEP_UNARY_KERNEL(AddScalar)
LOCKSTEP_UNARY_KERNEL(MulScalar)
LOCKSTEP_UNARY_KERNEL(DivScalar)
#undef LOCKSTEP_UNARY_KERNEL

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
