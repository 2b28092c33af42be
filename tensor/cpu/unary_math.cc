// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ops on one tensor that evaluate an elementary function, and GeluBackward.
#include <cstdint>

#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op_attributes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/unary_math.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/activations-inl.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"
#include "lockstep/tensor/cpu/vector_math-inl.h"

#ifndef LOCKSTEP_TENSOR_CPU_UNARY_MATH_ONCE_
#define LOCKSTEP_TENSOR_CPU_UNARY_MATH_ONCE_
namespace lockstep::cpu {
enum class MathOp { kExp, kLog, kErf, kTanh, kSigmoid, kGeluErf, kGeluTanh };
enum class GeluBackwardOp { kErf, kTanh };
}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

template <typename T>
void MathBlock(MathOp op, int64_t n, const T* x, T* y) {
  const hn::ScalableTag<T> d;
  const auto map = [&](const auto& f) HWY_ATTR { Transform(d, static_cast<size_t>(n), y, f, x); };
  switch (op) {
    case MathOp::kExp:
      return map([=](auto v) HWY_ATTR { return Exp(d, v); });
    case MathOp::kLog:
      return map([=](auto v) HWY_ATTR { return Log(d, v); });
    case MathOp::kErf:
      return map([=](auto v) HWY_ATTR { return Erf(d, v); });
    case MathOp::kTanh:
      return map([=](auto v) HWY_ATTR { return Tanh(d, v); });
    case MathOp::kSigmoid:
      return map([=](auto v) HWY_ATTR { return Sigmoid(d, v); });
    case MathOp::kGeluErf:
      return map([=](auto v) HWY_ATTR { return GeluErf(d, v); });
    case MathOp::kGeluTanh:
      return map([=](auto v) HWY_ATTR { return GeluTanh(d, v); });
  }
}

template <typename T>
void GeluBackwardBlock(GeluBackwardOp op, int64_t n, const T* grad, const T* x, T* dx) {
  const hn::ScalableTag<T> d;
  const size_t count = static_cast<size_t>(n);
  if (op == GeluBackwardOp::kTanh) {
    Transform(
        d, count, dx, [=](auto g, auto v) HWY_ATTR { return hn::Mul(g, GeluTanhDerivative(d, v)); },
        grad, x);
  } else {
    Transform(
        d, count, dx, [=](auto g, auto v) HWY_ATTR { return hn::Mul(g, GeluErfDerivative(d, v)); },
        grad, x);
  }
}

void MathFloat(MathOp op, int64_t n, const float* x, float* y) { MathBlock(op, n, x, y); }
void MathDouble(MathOp op, int64_t n, const double* x, double* y) { MathBlock(op, n, x, y); }
void GeluBackwardFloat(GeluBackwardOp op, int64_t n, const float* grad, const float* x, float* dx) {
  GeluBackwardBlock(op, n, grad, x, dx);
}
void GeluBackwardDouble(GeluBackwardOp op, int64_t n, const double* grad, const double* x,
                        double* dx) {
  GeluBackwardBlock(op, n, grad, x, dx);
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(MathFloat);
HWY_EXPORT(MathDouble);
HWY_EXPORT(GeluBackwardFloat);
HWY_EXPORT(GeluBackwardDouble);

// These take tens of instructions an element: smaller chunks are worth a thread.
constexpr StridedLoopOptions kMathOptions = {.chunk = kLoopChunk / 4};

void RunMath(MathOp op, const KernelContext& context, TensorSpan inputs,
             absl::Span<Tensor> outputs) {
  const bool is_double = outputs[0].dtype() == DType::kFloat64;
  RunStridedLoop(
      context, outputs, inputs,
      [&](int64_t, int64_t n, char* const* data) {
        if (is_double) {
          HWY_DYNAMIC_DISPATCH(MathDouble)(op, n, In<double>(data[1]), Out<double>(data[0]));
        } else {
          HWY_DYNAMIC_DISPATCH(MathFloat)(op, n, In<float>(data[1]), Out<float>(data[0]));
        }
      },
      kMathOptions);
}

}  // namespace

#define LOCKSTEP_MATH_KERNEL(name)                                                         \
  void name##Kernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs, \
                    const Scalars&, const Attributes&) {                                   \
    RunMath(MathOp::k##name, context, inputs, outputs);                                    \
  }
LOCKSTEP_MATH_KERNEL(Exp)
LOCKSTEP_MATH_KERNEL(Log)
LOCKSTEP_MATH_KERNEL(Erf)
LOCKSTEP_MATH_KERNEL(Tanh)
LOCKSTEP_MATH_KERNEL(Sigmoid)
#undef LOCKSTEP_MATH_KERNEL

void GeluKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                const Scalars&, const Attributes& attributes) {
  const bool tanh = attributes.As<GeluAttributes>().kind == GeluKind::kTanh;
  RunMath(tanh ? MathOp::kGeluTanh : MathOp::kGeluErf, context, inputs, outputs);
}

void GeluBackwardKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                        const Scalars&, const Attributes& attributes) {
  const GeluBackwardOp op = attributes.As<GeluAttributes>().kind == GeluKind::kTanh
                                ? GeluBackwardOp::kTanh
                                : GeluBackwardOp::kErf;
  const bool is_double = outputs[0].dtype() == DType::kFloat64;
  RunStridedLoop(
      context, outputs, inputs,
      [&](int64_t, int64_t n, char* const* data) {
        if (is_double) {
          HWY_DYNAMIC_DISPATCH(GeluBackwardDouble)
          (op, n, In<double>(data[1]), In<double>(data[2]), Out<double>(data[0]));
        } else {
          HWY_DYNAMIC_DISPATCH(GeluBackwardFloat)
          (op, n, In<float>(data[1]), In<float>(data[2]), Out<float>(data[0]));
        }
      },
      kMathOptions);
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
