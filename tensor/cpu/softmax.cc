// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Softmax and LogSoftmax with their gradients, row by row: another dimension than the last is moved
// to the end first (pack.h). Sums are taken in float32 (float64 for float64).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/pack.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op_attributes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/softmax.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/row_math-inl.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"
#include "lockstep/tensor/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// y may be x.
template <typename T>
void SoftmaxRow(size_t count, const T* x, T* y) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const auto max = hn::Set(d, RowMax<T>(count, x));
  const auto exponential = [d, max](auto v)
                               HWY_ATTR { return ExpOfNonPositive(d, hn::Sub(v, max)); };
  C sum;
  if constexpr (std::is_same_v<T, C>) {
    sum = RowSumStored<T>(count, y, exponential, x);
    const auto scale = hn::Set(d, C{1} / sum);
    Transform(
        d, count, y, [scale](auto v) HWY_ATTR { return hn::Mul(v, scale); }, y);
  } else {
    // Rounded once: the exponentials are computed again rather than kept in 16 bits.
    sum = RowSum<T>(count, exponential, x);
    const auto scale = hn::Set(d, C{1} / sum);
    Transform(
        d, count, y, [&](auto v) HWY_ATTR { return hn::Mul(exponential(v), scale); }, x);
  }
}

template <typename T>
void LogSoftmaxRow(size_t count, const T* x, T* y) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const auto max = hn::Set(d, RowMax<T>(count, x));
  const C sum = RowSum<T>(
      count, [d, max](auto v) HWY_ATTR { return ExpOfNonPositive(d, hn::Sub(v, max)); }, x);
  const auto log_sum = hn::Set(d, std::log(sum));
  Transform(
      d, count, y, [max, log_sum](auto v) HWY_ATTR { return hn::Sub(hn::Sub(v, max), log_sum); },
      x);
}

// dx may be grad.
template <typename T>
void SoftmaxBackwardRow(size_t count, const T* grad, const T* y, T* dx) {
  const hn::ScalableTag<ComputeType<T>> d;
  const auto dot =
      hn::Set(d, RowSum<T>(
                     count, [](auto g, auto v) HWY_ATTR { return hn::Mul(g, v); }, grad, y));
  Transform(
      d, count, dx, [dot](auto g, auto v) HWY_ATTR { return hn::Mul(v, hn::Sub(g, dot)); }, grad,
      y);
}

template <typename T>
void LogSoftmaxBackwardRow(size_t count, const T* grad, const T* y, T* dx) {
  const hn::ScalableTag<ComputeType<T>> d;
  const auto sum = hn::Set(d, RowSum<T>(
                                  count, [](auto g) HWY_ATTR { return g; }, grad));
  Transform(
      d, count, dx, [d, sum](auto g, auto v) HWY_ATTR { return hn::NegMulAdd(Exp(d, v), sum, g); },
      grad, y);
}

enum class RowOp { kSoftmax, kLogSoftmax, kSoftmaxBackward, kLogSoftmaxBackward };

template <RowOp kOp, typename T>
void RunRows(int64_t rows, int64_t count, const void* x, const void* y, void* out) {
  for (int64_t i = 0; i < rows; ++i) {
    const T* x_row = static_cast<const T*>(x) + i * count;
    T* out_row = static_cast<T*>(out) + i * count;
    if constexpr (kOp == RowOp::kSoftmax) {
      SoftmaxRow(static_cast<size_t>(count), x_row, out_row);
    } else if constexpr (kOp == RowOp::kLogSoftmax) {
      LogSoftmaxRow(static_cast<size_t>(count), x_row, out_row);
    } else {
      const T* y_row = static_cast<const T*>(y) + i * count;
      if constexpr (kOp == RowOp::kSoftmaxBackward) {
        SoftmaxBackwardRow(static_cast<size_t>(count), x_row, y_row, out_row);
      } else {
        LogSoftmaxBackwardRow(static_cast<size_t>(count), x_row, y_row, out_row);
      }
    }
  }
}

template <RowOp kOp>
void RunRowsOf(DType dtype, int64_t rows, int64_t count, const void* x, const void* y, void* out) {
  switch (dtype) {
    case DType::kBFloat16:
      return RunRows<kOp, bfloat16>(rows, count, x, y, out);
    case DType::kFloat16:
      return RunRows<kOp, float16>(rows, count, x, y, out);
    case DType::kFloat64:
      return RunRows<kOp, double>(rows, count, x, y, out);
    default:
      return RunRows<kOp, float>(rows, count, x, y, out);
  }
}

void SoftmaxRows(DType dtype, int64_t rows, int64_t count, const void* x, const void* y,
                 void* out) {
  RunRowsOf<RowOp::kSoftmax>(dtype, rows, count, x, y, out);
}
void LogSoftmaxRows(DType dtype, int64_t rows, int64_t count, const void* x, const void* y,
                    void* out) {
  RunRowsOf<RowOp::kLogSoftmax>(dtype, rows, count, x, y, out);
}
void SoftmaxBackwardRows(DType dtype, int64_t rows, int64_t count, const void* x, const void* y,
                         void* out) {
  RunRowsOf<RowOp::kSoftmaxBackward>(dtype, rows, count, x, y, out);
}
void LogSoftmaxBackwardRows(DType dtype, int64_t rows, int64_t count, const void* x, const void* y,
                            void* out) {
  RunRowsOf<RowOp::kLogSoftmaxBackward>(dtype, rows, count, x, y, out);
}

}  // namespace
}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(SoftmaxRows);
HWY_EXPORT(LogSoftmaxRows);
HWY_EXPORT(SoftmaxBackwardRows);
HWY_EXPORT(LogSoftmaxBackwardRows);

// Elements of a chunk of rows: a few microseconds of exponentials.
constexpr int64_t kChunkElements = 8192;

using RowsFunction = void (*)(DType, int64_t rows, int64_t count, const void* x, const void* y,
                              void* out);

void RunRowOp(KernelContext& context, TensorSpan inputs, const Tensor& output,
              const Attributes& attributes, RowsFunction function) {
  if (output.numel() == 0) return;
  const int64_t dim = attributes.As<DimAttributes>().dim;
  const int64_t count = output.rank() == 0 ? 1 : output.shape()[dim];
  const PackedInput x(context, inputs[0], dim);
  const PackedInput y(context, inputs.size() > 1 ? inputs[1] : inputs[0], dim);
  const PackedOutput out(context, output, dim);
  const DType dtype = output.dtype();
  const int64_t row_bytes = count * ItemSize(dtype);
  context.ParallelFor(output.numel() / count, std::max<int64_t>(1, kChunkElements / count),
                      [&](int64_t begin, int64_t end) {
                        function(dtype, end - begin, count, x.data<char>() + begin * row_bytes,
                                 y.data<char>() + begin * row_bytes,
                                 out.data<char>() + begin * row_bytes);
                      });
  out.Finish(context);
}

}  // namespace

void SoftmaxKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                   const Scalars&, const Attributes& attributes) {
  RunRowOp(context, inputs, outputs[0], attributes, HWY_DYNAMIC_DISPATCH(SoftmaxRows));
}

void LogSoftmaxKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                      const Scalars&, const Attributes& attributes) {
  RunRowOp(context, inputs, outputs[0], attributes, HWY_DYNAMIC_DISPATCH(LogSoftmaxRows));
}

void SoftmaxBackwardKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                           const Scalars&, const Attributes& attributes) {
  RunRowOp(context, inputs, outputs[0], attributes, HWY_DYNAMIC_DISPATCH(SoftmaxBackwardRows));
}

void LogSoftmaxBackwardKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                              const Scalars&, const Attributes& attributes) {
  RunRowOp(context, inputs, outputs[0], attributes, HWY_DYNAMIC_DISPATCH(LogSoftmaxBackwardRows));
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
