// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Layer normalisation and its gradient. Everything is computed in float32 (float64 for float64),
// the parameters included.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/tensor/cpu/convert.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/pack.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/tensor_data.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/layer_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/row_math-inl.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

// Arguments of the row loops, once for all targets. C: the type that x is computed in.
#ifndef LOCKSTEP_TENSOR_CPU_LAYER_NORM_CC_
#define LOCKSTEP_TENSOR_CPU_LAYER_NORM_CC_
namespace lockstep::cpu {
namespace {

struct LayerNormArguments {
  const void* x;       // [rows, count]
  const void* weight;  // C [count], or null for ones
  const void* bias;    // C [count], or null for zeros
  void* y;
  void* mean;  // C [rows]
  void* rstd;  // C [rows]
  int64_t count;
  double epsilon;
};

struct LayerNormBackwardArguments {
  const void* grad;
  const void* x;
  const void* mean;
  const void* rstd;
  const void* weight;  // C, or null for ones
  void* dx;
  int64_t count;
};

}  // namespace
}  // namespace lockstep::cpu
#endif  // LOCKSTEP_TENSOR_CPU_LAYER_NORM_CC_

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Rows of 16-bit floats up to this length are converted once instead of in each pass.
constexpr int64_t kMaxWidenedCount = 4096;

template <typename T, typename C>
HWY_INLINE void WidenRow(size_t count, const T* row, C* widened) {
  Transform(
      hn::ScalableTag<C>(), count, widened, [](auto v) HWY_ATTR { return v; }, row);
}

// y = (x - mean) * rstd * weight + bias; parameters that are null are left out.
template <typename X, typename T, typename C>
HWY_INLINE void NormaliseRow(size_t count, const X* x, C mean, C rstd, const C* weight,
                             const C* bias, T* y) {
  const hn::ScalableTag<C> d;
  const auto m = hn::Set(d, mean);
  const auto r = hn::Set(d, rstd);
  if (weight != nullptr && bias != nullptr) {
    Transform(
        d, count, y,
        [m, r](auto v, auto w, auto b)
            HWY_ATTR { return hn::MulAdd(hn::Mul(hn::Sub(v, m), r), w, b); },
        x, weight, bias);
  } else if (weight != nullptr) {
    Transform(
        d, count, y,
        [m, r](auto v, auto w) HWY_ATTR { return hn::Mul(hn::Mul(hn::Sub(v, m), r), w); }, x,
        weight);
  } else if (bias != nullptr) {
    Transform(
        d, count, y, [m, r](auto v, auto b) HWY_ATTR { return hn::MulAdd(hn::Sub(v, m), r, b); }, x,
        bias);
  } else {
    Transform(
        d, count, y, [m, r](auto v) HWY_ATTR { return hn::Mul(hn::Sub(v, m), r); }, x);
  }
}

// One row: `x` holds elements of y's type T, or their conversion.
template <typename T, typename X>
HWY_INLINE void ForwardRow(const LayerNormArguments& a, int64_t row, const X* x) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const size_t count = static_cast<size_t>(a.count);
  const C scale = static_cast<C>(1.0 / static_cast<double>(a.count));
  const C mean = RowSum<X>(
                     count, [](auto v) HWY_ATTR { return v; }, x) *
                 scale;
  const auto m = hn::Set(d, mean);
  // About the mean: E[x^2] - mean^2 cancels when the mean is large.
  const C variance = RowSum<X>(
                         count,
                         [m](auto v) HWY_ATTR {
                           const auto centred = hn::Sub(v, m);
                           return hn::Mul(centred, centred);
                         },
                         x) *
                     scale;
  const C rstd = C{1} / std::sqrt(variance + static_cast<C>(a.epsilon));
  NormaliseRow<X, T, C>(count, x, mean, rstd, static_cast<const C*>(a.weight),
                        static_cast<const C*>(a.bias), static_cast<T*>(a.y) + row * a.count);
  static_cast<C*>(a.mean)[row] = mean;
  static_cast<C*>(a.rstd)[row] = rstd;
}

template <typename T>
void ForwardRows(const LayerNormArguments& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * a.count;
    if constexpr (!std::is_same_v<T, C>) {
      if (a.count <= kMaxWidenedCount) {
        HWY_ALIGN C widened[kMaxWidenedCount];
        WidenRow(static_cast<size_t>(a.count), x, widened);
        ForwardRow<T>(a, row, widened);
        continue;
      }
    }
    ForwardRow<T>(a, row, x);
  }
}

// Adds the row's parts of dweight and dbias to `sums`, C [2][count]. `x` and `grad` hold elements
// of dx's type T, or their conversions.
template <typename T, typename X>
HWY_INLINE void BackwardRow(const LayerNormBackwardArguments& a, int64_t row, const X* x,
                            const X* grad, void* sums) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const size_t count = static_cast<size_t>(a.count);
  const C scale = static_cast<C>(1.0 / static_cast<double>(a.count));
  C* dweight = static_cast<C*>(sums);
  C* dbias = dweight + a.count;
  const C* weight = static_cast<const C*>(a.weight);
  T* dx = static_cast<T*>(a.dx) + row * a.count;
  const auto m = hn::Set(d, static_cast<const C*>(a.mean)[row]);
  const auto r = hn::Set(d, static_cast<const C*>(a.rstd)[row]);
  const auto normalised = [m, r](auto v) HWY_ATTR { return hn::Mul(hn::Sub(v, m), r); };
  Transform(
      d, count, dweight,
      [&](auto sum, auto g, auto v) HWY_ATTR { return hn::MulAdd(g, normalised(v), sum); }, dweight,
      grad, x);
  Transform(
      d, count, dbias, [](auto sum, auto g) HWY_ATTR { return hn::Add(sum, g); }, dbias, grad);
  // With h = grad * weight: dx = rstd * (h - mean(h) - normalised * mean(h * normalised)).
  if (weight != nullptr) {
    const C mean_h =
        scale * RowSum<X>(
                    count, [](auto g, auto w) HWY_ATTR { return hn::Mul(g, w); }, grad, weight);
    const C mean_hn = scale * RowSum<X>(
                                  count,
                                  [&](auto g, auto w, auto v)
                                      HWY_ATTR { return hn::Mul(hn::Mul(g, w), normalised(v)); },
                                  grad, weight, x);
    const auto a0 = hn::Set(d, mean_h);
    const auto a1 = hn::Set(d, mean_hn);
    Transform(
        d, count, dx,
        [&](auto g, auto w, auto v) HWY_ATTR {
          return hn::Mul(r, hn::NegMulAdd(normalised(v), a1, hn::Sub(hn::Mul(g, w), a0)));
        },
        grad, weight, x);
  } else {
    const C mean_h = scale * RowSum<X>(
                                 count, [](auto g) HWY_ATTR { return g; }, grad);
    const C mean_hn =
        scale *
        RowSum<X>(
            count, [&](auto g, auto v) HWY_ATTR { return hn::Mul(g, normalised(v)); }, grad, x);
    const auto a0 = hn::Set(d, mean_h);
    const auto a1 = hn::Set(d, mean_hn);
    Transform(
        d, count, dx,
        [&](auto g, auto v)
            HWY_ATTR { return hn::Mul(r, hn::NegMulAdd(normalised(v), a1, hn::Sub(g, a0))); },
        grad, x);
  }
}

template <typename T>
void BackwardRows(const LayerNormBackwardArguments& a, int64_t begin, int64_t end, void* sums) {
  using C = ComputeType<T>;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * a.count;
    const T* grad = static_cast<const T*>(a.grad) + row * a.count;
    if constexpr (!std::is_same_v<T, C>) {
      if (a.count <= kMaxWidenedCount) {
        HWY_ALIGN C wide_x[kMaxWidenedCount];
        HWY_ALIGN C wide_grad[kMaxWidenedCount];
        WidenRow(static_cast<size_t>(a.count), x, wide_x);
        WidenRow(static_cast<size_t>(a.count), grad, wide_grad);
        BackwardRow<T>(a, row, wide_x, wide_grad, sums);
        continue;
      }
    }
    BackwardRow<T>(a, row, x, grad, sums);
  }
}

void LayerNormForwardRows(DType dtype, const LayerNormArguments& a, int64_t begin, int64_t end) {
  switch (dtype) {
    case DType::kBFloat16:
      return ForwardRows<bfloat16>(a, begin, end);
    case DType::kFloat16:
      return ForwardRows<float16>(a, begin, end);
    case DType::kFloat64:
      return ForwardRows<double>(a, begin, end);
    default:
      return ForwardRows<float>(a, begin, end);
  }
}

void LayerNormBackwardRows(DType dtype, const LayerNormBackwardArguments& a, int64_t begin,
                           int64_t end, void* sums) {
  switch (dtype) {
    case DType::kBFloat16:
      return BackwardRows<bfloat16>(a, begin, end, sums);
    case DType::kFloat16:
      return BackwardRows<float16>(a, begin, end, sums);
    case DType::kFloat64:
      return BackwardRows<double>(a, begin, end, sums);
    default:
      return BackwardRows<float>(a, begin, end, sums);
  }
}

}  // namespace
}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(LayerNormForwardRows);
HWY_EXPORT(LayerNormBackwardRows);

constexpr int64_t kForwardChunkElements = 8192;
// Rows of a chunk of the gradient: at most 64 chunks, each with sums of its own.
constexpr int64_t kMaxBackwardChunks = 64;
constexpr int64_t kMinBackwardChunkElements = 4096;

int64_t NormalizedCount(const Shape& shape, const Attributes& attributes) {
  const int64_t rank = attributes.As<LayerNormAttributes>().normalized_rank;
  int64_t count = 1;
  for (size_t d = shape.size() - static_cast<size_t>(rank); d < shape.size(); ++d) {
    count *= shape[d];
  }
  return count;
}

const void* ParameterOrNull(KernelContext& context, const Tensor& tensor, DType dtype) {
  return tensor.defined() ? PackedAs(context, tensor, dtype) : nullptr;
}

// Sums of the chunks in their order, rounded once to the parameter's dtype.
template <typename C>
void CombineSums(const C* partial, int64_t chunks, int64_t count, C* total) {
  std::fill_n(total, 2 * count, C{0});
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (int64_t i = 0; i < 2 * count; ++i) total[i] += partial[chunk * 2 * count + i];
  }
}

template <typename C>
void RunBackward(KernelContext& context, const LayerNormBackwardArguments& a, DType dtype,
                 int64_t rows, absl::Span<Tensor> outputs) {
  const int64_t chunk =
      std::max({(rows + kMaxBackwardChunks - 1) / kMaxBackwardChunks,
                kMinBackwardChunkElements / std::max<int64_t>(a.count, 1), int64_t{1}});
  const int64_t chunks = (rows + chunk - 1) / chunk;
  C* const partial = context.Workspace<C>((chunks + 1) * 2 * a.count);
  C* const total = partial + chunks * 2 * a.count;
  context.ParallelFor(rows, chunk, [&](int64_t begin, int64_t end) {
    C* sums = partial + begin / chunk * 2 * a.count;
    std::fill_n(sums, 2 * a.count, C{0});
    HWY_DYNAMIC_DISPATCH(LayerNormBackwardRows)(dtype, a, begin, end, sums);
  });
  CombineSums(partial, chunks, a.count, total);
  for (int i = 0; i < 2; ++i) {
    ConvertElements(kDTypeOf<C>, outputs[1 + i].dtype(), a.count, total + i * a.count,
                    KernelRawData(outputs[1 + i]));
  }
}

}  // namespace

void LayerNormKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                     const Scalars& scalars, const Attributes& attributes) {
  const DType dtype = inputs[0].dtype();
  const DType compute = ComputeDType(dtype);
  const PackedInput x(context, inputs[0]);
  LayerNormArguments a;
  a.x = x.raw();
  a.weight = ParameterOrNull(context, inputs[1], compute);
  a.bias = ParameterOrNull(context, inputs[2], compute);
  a.y = KernelRawData(outputs[0]);
  a.mean = KernelRawData(outputs[1]);
  a.rstd = KernelRawData(outputs[2]);
  a.count = NormalizedCount(inputs[0].shape(), attributes);
  a.epsilon = scalars[0].AsDouble();
  const int64_t chunk = std::max<int64_t>(1, kForwardChunkElements / std::max<int64_t>(a.count, 1));
  context.ParallelFor(outputs[1].numel(), chunk, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(LayerNormForwardRows)(dtype, a, begin, end);
  });
}

void LayerNormBackwardKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                             const Scalars&, const Attributes& attributes) {
  const DType dtype = inputs[1].dtype();
  const DType compute = ComputeDType(dtype);
  const PackedInput grad(context, inputs[0]), x(context, inputs[1]);
  const PackedInput mean(context, inputs[2]), rstd(context, inputs[3]);
  LayerNormBackwardArguments a;
  a.grad = grad.raw();
  a.x = x.raw();
  a.mean = mean.raw();
  a.rstd = rstd.raw();
  a.weight = ParameterOrNull(context, inputs[4], compute);
  a.dx = KernelRawData(outputs[0]);
  a.count = NormalizedCount(inputs[1].shape(), attributes);
  if (compute == DType::kFloat64) {
    RunBackward<double>(context, a, dtype, inputs[2].numel(), outputs);
  } else {
    RunBackward<float>(context, a, dtype, inputs[2].numel(), outputs);
  }
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
