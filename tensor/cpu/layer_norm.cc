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

// The row in the type that it is computed in. 16-bit floats are converted once, into `widened`,
// instead of in each pass.
template <typename T, typename C>
HWY_INLINE const C* WidenRow(size_t count, const T* row, C* widened) {
  if constexpr (std::is_same_v<T, C>) {
    return row;
  } else {
    Transform(
        hn::ScalableTag<C>(), count, widened, [](auto v) HWY_ATTR { return v; }, row);
    return widened;
  }
}

// y = (x - mean) * rstd * weight + bias; parameters that are null are left out.
template <typename T, typename C>
HWY_INLINE void NormaliseRow(size_t count, const C* x, C mean, C rstd, const C* weight,
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

// `scratch` has room for a row of C.
template <typename T>
void ForwardRows(const LayerNormArguments& a, int64_t begin, int64_t end, void* scratch) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const size_t count = static_cast<size_t>(a.count);
  const C scale = static_cast<C>(1.0 / static_cast<double>(a.count));
  for (int64_t row = begin; row < end; ++row) {
    const C* x =
        WidenRow(count, static_cast<const T*>(a.x) + row * a.count, static_cast<C*>(scratch));
    const C mean = RowSum<C>(
                       count, [](auto v) HWY_ATTR { return v; }, x) *
                   scale;
    const auto m = hn::Set(d, mean);
    // About the mean: E[x^2] - mean^2 cancels when the mean is large.
    const C variance = RowSum<C>(
                           count,
                           [m](auto v) HWY_ATTR {
                             const auto centred = hn::Sub(v, m);
                             return hn::Mul(centred, centred);
                           },
                           x) *
                       scale;
    const C rstd = C{1} / std::sqrt(variance + static_cast<C>(a.epsilon));
    NormaliseRow<T, C>(count, x, mean, rstd, static_cast<const C*>(a.weight),
                       static_cast<const C*>(a.bias), static_cast<T*>(a.y) + row * a.count);
    static_cast<C*>(a.mean)[row] = mean;
    static_cast<C*>(a.rstd)[row] = rstd;
  }
}

// Adds the rows' parts of dweight and dbias to `sums`, C [2][count]; `scratch` has room for two
// rows of C.
template <typename T>
void BackwardRows(const LayerNormBackwardArguments& a, int64_t begin, int64_t end, void* sums,
                  void* scratch) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const size_t count = static_cast<size_t>(a.count);
  const C scale = static_cast<C>(1.0 / static_cast<double>(a.count));
  C* dweight = static_cast<C*>(sums);
  C* dbias = dweight + a.count;
  const C* weight = static_cast<const C*>(a.weight);
  C* const wide_x = static_cast<C*>(scratch);
  C* const wide_grad = scratch == nullptr ? nullptr : wide_x + a.count;
  for (int64_t row = begin; row < end; ++row) {
    const C* x = WidenRow(count, static_cast<const T*>(a.x) + row * a.count, wide_x);
    const C* grad = WidenRow(count, static_cast<const T*>(a.grad) + row * a.count, wide_grad);
    T* dx = static_cast<T*>(a.dx) + row * a.count;
    const auto m = hn::Set(d, static_cast<const C*>(a.mean)[row]);
    const auto r = hn::Set(d, static_cast<const C*>(a.rstd)[row]);
    const auto normalised = [m, r](auto v) HWY_ATTR { return hn::Mul(hn::Sub(v, m), r); };
    Transform(
        d, count, dweight,
        [&](auto sum, auto g, auto v) HWY_ATTR { return hn::MulAdd(g, normalised(v), sum); },
        dweight, grad, x);
    Transform(
        d, count, dbias, [](auto sum, auto g) HWY_ATTR { return hn::Add(sum, g); }, dbias, grad);
    // With h = grad * weight: dx = rstd * (h - mean(h) - normalised * mean(h * normalised)).
    if (weight != nullptr) {
      const C mean_h =
          scale * RowSum<C>(
                      count, [](auto g, auto w) HWY_ATTR { return hn::Mul(g, w); }, grad, weight);
      const C mean_hn = scale * RowSum<C>(
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
      const C mean_h = scale * RowSum<C>(
                                   count, [](auto g) HWY_ATTR { return g; }, grad);
      const C mean_hn =
          scale *
          RowSum<C>(
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
}

void LayerNormForwardRows(DType dtype, const LayerNormArguments& a, int64_t begin, int64_t end,
                          void* scratch) {
  switch (dtype) {
    case DType::kBFloat16:
      return ForwardRows<bfloat16>(a, begin, end, scratch);
    case DType::kFloat16:
      return ForwardRows<float16>(a, begin, end, scratch);
    case DType::kFloat64:
      return ForwardRows<double>(a, begin, end, scratch);
    default:
      return ForwardRows<float>(a, begin, end, scratch);
  }
}

void LayerNormBackwardRows(DType dtype, const LayerNormBackwardArguments& a, int64_t begin,
                           int64_t end, void* sums, void* scratch) {
  switch (dtype) {
    case DType::kBFloat16:
      return BackwardRows<bfloat16>(a, begin, end, sums, scratch);
    case DType::kFloat16:
      return BackwardRows<float16>(a, begin, end, sums, scratch);
    case DType::kFloat64:
      return BackwardRows<double>(a, begin, end, sums, scratch);
    default:
      return BackwardRows<float>(a, begin, end, sums, scratch);
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
// At most this many chunks have sums, or a row to convert to, of their own.
constexpr int64_t kMaxChunks = 64;
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
      std::max({(rows + kMaxChunks - 1) / kMaxChunks,
                kMinBackwardChunkElements / std::max<int64_t>(a.count, 1), int64_t{1}});
  const int64_t chunks = (rows + chunk - 1) / chunk;
  C* const partial = context.Workspace<C>((chunks + 1) * 2 * a.count);
  C* const total = partial + chunks * 2 * a.count;
  C* const rows_of_chunks =
      IsReducedFloat(dtype) ? context.Workspace<C>(chunks * 2 * a.count) : nullptr;
  context.ParallelFor(rows, chunk, [&](int64_t begin, int64_t end) {
    C* sums = partial + begin / chunk * 2 * a.count;
    std::fill_n(sums, 2 * a.count, C{0});
    C* scratch = rows_of_chunks == nullptr ? nullptr : rows_of_chunks + begin / chunk * 2 * a.count;
    HWY_DYNAMIC_DISPATCH(LayerNormBackwardRows)(dtype, a, begin, end, sums, scratch);
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
  const int64_t rows = outputs[1].numel();
  int64_t chunk = std::max<int64_t>(1, kForwardChunkElements / std::max<int64_t>(a.count, 1));
  float* rows_of_chunks = nullptr;
  if (IsReducedFloat(dtype)) {
    chunk = std::max(chunk, (rows + kMaxChunks - 1) / kMaxChunks);
    rows_of_chunks = context.Workspace<float>((rows + chunk - 1) / chunk * a.count);
  }
  context.ParallelFor(rows, chunk, [&](int64_t begin, int64_t end) {
    float* scratch = rows_of_chunks == nullptr ? nullptr : rows_of_chunks + begin / chunk * a.count;
    HWY_DYNAMIC_DISPATCH(LayerNormForwardRows)(dtype, a, begin, end, scratch);
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
