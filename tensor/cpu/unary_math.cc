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

// Elements of type E, computed in float for the 16-bit ones, which convert in registers.
template <typename E>
void MathBlock(MathOp op, int64_t n, const E* x, E* y) {
  const hn::ScalableTag<ComputeType<E>> d;
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

template <typename E>
void GeluBackwardBlock(GeluBackwardOp op, int64_t n, const E* grad, const E* x, E* dx) {
  const hn::ScalableTag<ComputeType<E>> d;
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

// HWY_EXPORT takes plain functions.
void MathFloat(MathOp op, int64_t n, const float* x, float* y) { MathBlock(op, n, x, y); }
void MathBFloat16(MathOp op, int64_t n, const bfloat16* x, bfloat16* y) { MathBlock(op, n, x, y); }
void MathFloat16(MathOp op, int64_t n, const float16* x, float16* y) { MathBlock(op, n, x, y); }
void MathDouble(MathOp op, int64_t n, const double* x, double* y) { MathBlock(op, n, x, y); }
void GeluBackwardFloat(GeluBackwardOp op, int64_t n, const float* grad, const float* x, float* dx) {
  GeluBackwardBlock(op, n, grad, x, dx);
}
void GeluBackwardBFloat16(GeluBackwardOp op, int64_t n, const bfloat16* grad, const bfloat16* x,
                          bfloat16* dx) {
  GeluBackwardBlock(op, n, grad, x, dx);
}
void GeluBackwardFloat16(GeluBackwardOp op, int64_t n, const float16* grad, const float16* x,
                         float16* dx) {
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
HWY_EXPORT(MathBFloat16);
HWY_EXPORT(MathFloat16);
HWY_EXPORT(MathDouble);
HWY_EXPORT(GeluBackwardFloat);
HWY_EXPORT(GeluBackwardBFloat16);
HWY_EXPORT(GeluBackwardFloat16);
HWY_EXPORT(GeluBackwardDouble);

// These take tens of instructions an element: smaller chunks are worth a thread.
constexpr StridedLoopOptions kMathOptions = {.raw = true, .chunk = kLoopChunk / 4};

void RunMath(MathOp op, const KernelContext& context, TensorSpan inputs,
             absl::Span<Tensor> outputs) {
  const DType dtype = outputs[0].dtype();
  const auto body = [&](int64_t, int64_t n, char* const* data) {
    const auto call = [&]<typename E>(TypeTag<E>, auto function) {
      function(op, n, In<E>(data[1]), Out<E>(data[0]));
    };
    switch (dtype) {
      case DType::kBFloat16:
        return call(TypeTag<bfloat16>{}, HWY_DYNAMIC_DISPATCH(MathBFloat16));
      case DType::kFloat16:
        return call(TypeTag<float16>{}, HWY_DYNAMIC_DISPATCH(MathFloat16));
      case DType::kFloat64:
        return call(TypeTag<double>{}, HWY_DYNAMIC_DISPATCH(MathDouble));
      default:
        return call(TypeTag<float>{}, HWY_DYNAMIC_DISPATCH(MathFloat));
    }
  };
  RunStridedLoop(context, outputs, inputs, body, kMathOptions);
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
  const DType dtype = outputs[0].dtype();
  const auto body = [&](int64_t, int64_t n, char* const* data) {
    const auto call = [&]<typename E>(TypeTag<E>, auto function) {
      function(op, n, In<E>(data[1]), In<E>(data[2]), Out<E>(data[0]));
    };
    switch (dtype) {
      case DType::kBFloat16:
        return call(TypeTag<bfloat16>{}, HWY_DYNAMIC_DISPATCH(GeluBackwardBFloat16));
      case DType::kFloat16:
        return call(TypeTag<float16>{}, HWY_DYNAMIC_DISPATCH(GeluBackwardFloat16));
      case DType::kFloat64:
        return call(TypeTag<double>{}, HWY_DYNAMIC_DISPATCH(GeluBackwardDouble));
      default:
        return call(TypeTag<float>{}, HWY_DYNAMIC_DISPATCH(GeluBackwardFloat));
    }
  };
  RunStridedLoop(context, outputs, inputs, body, kMathOptions);
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
