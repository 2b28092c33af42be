// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GlobalNorm, ClipByNorm and UnscaleAndCheck. Squares are summed in float64: chunk by chunk, and
// the chunks in their order. NaN anywhere makes the norm NaN, and a NaN norm every gradient, as in
// PyTorch.

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/pack.h"
#include "lockstep/tensor/cpu/update/tensor_chunks.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/tensor_data.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/update/norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// `lanes` elements as doubles, zeros behind them.
template <class DD, typename T>
HWY_INLINE hn::Vec<DD> LoadDoubles(DD dd, const T* x, size_t lanes) {
  if constexpr (std::is_same_v<T, double>) {
    return lanes == hn::Lanes(dd) ? LoadFull(dd, x) : LoadPartial(dd, x, lanes);
  } else {
    const hn::Rebind<float, DD> df;
    return hn::PromoteTo(dd, lanes == hn::Lanes(dd) ? LoadFull(df, x) : LoadPartial(df, x, lanes));
  }
}

template <typename T>
double SquaresOf(const T* x, size_t count) {
  const hn::ScalableTag<double> dd;
  const size_t lanes = hn::Lanes(dd);
  auto sum0 = hn::Zero(dd), sum1 = hn::Zero(dd), sum2 = hn::Zero(dd), sum3 = hn::Zero(dd);
  const auto add = [&](auto& sum, size_t at, size_t n) HWY_ATTR {
    const auto v = LoadDoubles(dd, x + at, n);
    sum = hn::MulAdd(v, v, sum);
  };
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    add(sum0, i, lanes);
    add(sum1, i + lanes, lanes);
    add(sum2, i + 2 * lanes, lanes);
    add(sum3, i + 3 * lanes, lanes);
  }
  for (; i < count; i += lanes) add(sum0, i, count - i < lanes ? count - i : lanes);
  return hn::GetLane(hn::SumOfLanes(dd, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

// The largest magnitude; NaN if there is one.
template <typename T>
double LargestOf(const T* x, size_t count) {
  const hn::ScalableTag<double> dd;
  const size_t lanes = hn::Lanes(dd);
  auto largest = hn::Zero(dd);
  auto nan_trace = hn::Zero(dd);  // 0 * x is NaN for NaN and infinity
  bool has_nan = false;
  for (size_t i = 0; i < count; i += lanes) {
    const auto v = LoadDoubles(dd, x + i, count - i < lanes ? count - i : lanes);
    largest = hn::Max(largest, hn::Abs(v));
    nan_trace = hn::MulAdd(v, hn::Zero(dd), nan_trace);
  }
  if (!hn::AllFalse(dd, hn::IsNaN(nan_trace))) {
    for (size_t i = 0; i < count && !has_nan; ++i) {
      has_nan = std::isnan(hn::GetLane(LoadDoubles(dd, x + i, 1)));
    }
  }
  return has_nan ? std::numeric_limits<double>::quiet_NaN()
                 : hn::GetLane(hn::MaxOfLanes(dd, largest));
}

template <typename T>
void ScaleElements(T* x, size_t count, double factor) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const auto f = hn::Set(d, static_cast<C>(factor));
  Transform(
      d, count, x, [f](auto v) HWY_ATTR { return hn::Mul(v, f); }, x);
}

// As ScaleElements; whether all elements were finite before.
template <typename T>
bool ScaleFinite(T* x, size_t count, double factor) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const auto f = hn::Set(d, static_cast<C>(factor));
  auto trace = hn::Zero(d);  // 0 * x is NaN for NaN and infinity
  Transform(
      d, count, x,
      [f, d, &trace](auto v) HWY_ATTR {
        trace = hn::MulAdd(v, hn::Zero(d), trace);
        return hn::Mul(v, f);
      },
      x);
  return hn::AllFalse(d, hn::IsNaN(trace));
}

template <typename T>
double NormPart(const void* x, int64_t begin, int64_t count, bool infinity) {
  const T* data = static_cast<const T*>(x) + begin;
  return infinity ? LargestOf(data, static_cast<size_t>(count))
                  : SquaresOf(data, static_cast<size_t>(count));
}

double NormPartOf(DType dtype, const void* x, int64_t begin, int64_t count, bool infinity) {
  switch (dtype) {
    case DType::kBFloat16:
      return NormPart<bfloat16>(x, begin, count, infinity);
    case DType::kFloat16:
      return NormPart<float16>(x, begin, count, infinity);
    case DType::kFloat64:
      return NormPart<double>(x, begin, count, infinity);
    default:
      return NormPart<float>(x, begin, count, infinity);
  }
}

void ScaleChunkOf(DType dtype, void* x, int64_t begin, int64_t count, double factor) {
  const size_t n = static_cast<size_t>(count);
  switch (dtype) {
    case DType::kBFloat16:
      return ScaleElements(static_cast<bfloat16*>(x) + begin, n, factor);
    case DType::kFloat16:
      return ScaleElements(static_cast<float16*>(x) + begin, n, factor);
    case DType::kFloat64:
      return ScaleElements(static_cast<double*>(x) + begin, n, factor);
    default:
      return ScaleElements(static_cast<float*>(x) + begin, n, factor);
  }
}

bool ScaleFiniteChunkOf(DType dtype, void* x, int64_t begin, int64_t count, double factor) {
  const size_t n = static_cast<size_t>(count);
  switch (dtype) {
    case DType::kBFloat16:
      return ScaleFinite(static_cast<bfloat16*>(x) + begin, n, factor);
    case DType::kFloat16:
      return ScaleFinite(static_cast<float16*>(x) + begin, n, factor);
    case DType::kFloat64:
      return ScaleFinite(static_cast<double*>(x) + begin, n, factor);
    default:
      return ScaleFinite(static_cast<float*>(x) + begin, n, factor);
  }
}

}  // namespace
}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(NormPartOf);
HWY_EXPORT(ScaleChunkOf);
HWY_EXPORT(ScaleFiniteChunkOf);

// min(1, max_norm / (norm + 1e-6)) in the norm's own type, as PyTorch's tensor arithmetic has it; a
// NaN stays.
template <typename T>
double ClipFactor(const Tensor& norm, double max_norm) {
  const T factor = static_cast<T>(max_norm) / (*KernelData<T>(norm) + static_cast<T>(1e-6));
  return static_cast<double>(factor > T{1} ? T{1} : factor);
}

// Calls chunk(dtype, data, begin, count) for every chunk of the tensors, to be changed in place.
template <typename Chunk>
void ChangeChunks(KernelContext& context, TensorSpan tensors, const Chunk& chunk) {
  std::vector<PackedInOut> data;
  data.reserve(tensors.size());
  for (const Tensor& tensor : tensors) data.emplace_back(context, tensor);
  const std::vector<TensorChunk> chunks = MakeTensorChunks(tensors);
  context.ParallelFor(static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const TensorChunk& c = chunks[i];
      chunk(tensors[c.tensor].dtype(), data[c.tensor].raw(), c.begin, c.count);
    }
  });
  for (const PackedInOut& packed : data) packed.Finish(context);
}

}  // namespace

void GlobalNormKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                      const Scalars&, const Attributes& attributes) {
  const bool infinity = attributes.As<NormAttributes>().infinity;
  std::vector<const void*> data;
  data.reserve(inputs.size());
  for (const Tensor& tensor : inputs) data.push_back(PackedInput(context, tensor).raw());
  const std::vector<TensorChunk> chunks = MakeTensorChunks(inputs);
  std::vector<double> parts(chunks.size());
  context.ParallelFor(static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const TensorChunk& chunk = chunks[i];
      parts[i] = HWY_DYNAMIC_DISPATCH(NormPartOf)(inputs[chunk.tensor].dtype(), data[chunk.tensor],
                                                  chunk.begin, chunk.count, infinity);
    }
  });
  double total = 0;
  for (const double part : parts) {
    if (!infinity) {
      total += part;
    } else if (part > total || std::isnan(part)) {
      total = part;
    }
    if (std::isnan(total)) break;
  }
  const double norm = infinity ? total : std::sqrt(total);
  if (outputs[0].dtype() == DType::kFloat64) {
    *KernelData<double>(outputs[0]) = norm;
  } else {
    *KernelData<float>(outputs[0]) = static_cast<float>(norm);
  }
}

void ClipByNormKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor>,
                      const Scalars& scalars, const Attributes&) {
  const Tensor& norm = inputs.back();
  const double max_norm = scalars[0].AsDouble();
  const double factor = norm.dtype() == DType::kFloat64 ? ClipFactor<double>(norm, max_norm)
                                                        : ClipFactor<float>(norm, max_norm);
  if (factor == 1) return;  // x * 1 is x
  ChangeChunks(context, inputs.subspan(0, inputs.size() - 1),
               [&](DType dtype, void* data, int64_t begin, int64_t count) {
                 HWY_DYNAMIC_DISPATCH(ScaleChunkOf)(dtype, data, begin, count, factor);
               });
}

void UnscaleAndCheckKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor>,
                           const Scalars& scalars, const Attributes&) {
  const double factor = scalars[0].AsDouble();
  std::atomic<bool> finite{true};
  ChangeChunks(context, inputs.subspan(0, inputs.size() - 1),
               [&](DType dtype, void* data, int64_t begin, int64_t count) {
                 if (!HWY_DYNAMIC_DISPATCH(ScaleFiniteChunkOf)(dtype, data, begin, count, factor)) {
                   finite.store(false, std::memory_order_relaxed);
                 }
               });
  if (!finite) *KernelData<float>(inputs.back()) = 1;
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
