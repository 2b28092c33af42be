// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Cross entropy of logits [N, C] and class indices, fused: no [N, C] intermediate in the forward
// pass, one pass over memory in the backward pass. With s = label_smoothing and lse =
// log(sum(exp(x))):
//
//   loss = (1 - s) * (lse - x[target]) + s * (lse - mean(x))
//   dx   = (exp(x - lse) - s / C - (1 - s) * [j == target]) * grad (/ targets that count, for
//   kMean)

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu/convert.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/pack.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/tensor_data.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/cross_entropy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/row_math-inl.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"
#include "lockstep/tensor/cpu/vector_math-inl.h"

#ifndef LOCKSTEP_TENSOR_CPU_CROSS_ENTROPY_CC_
#define LOCKSTEP_TENSOR_CPU_CROSS_ENTROPY_CC_
namespace lockstep::cpu {
namespace {

struct CrossEntropyArguments {
  const void* logits;     // [rows, classes]
  const int64_t* target;  // [rows]
  int64_t classes;
  int64_t ignore_index;
  double label_smoothing;
  void* log_sum_exp;  // [rows], float or double; written by the forward pass
  double* losses;     // [rows], forward
  const void* grad;   // of the compute type: [1] or [rows], backward
  int64_t grad_stride;
  double grad_scale;
  void* dlogits;
};

}  // namespace
}  // namespace lockstep::cpu
#endif  // LOCKSTEP_TENSOR_CPU_CROSS_ENTROPY_CC_

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
HWY_INLINE double Element(const T* x, int64_t index) {
  const hn::ScalableTag<ComputeType<T>> d;
  return static_cast<double>(hn::GetLane(LoadPartial(d, x + index, 1)));
}

template <typename T>
void ForwardRows(const CrossEntropyArguments& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const size_t count = static_cast<size_t>(a.classes);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.logits) + row * a.classes;
    const C max = RowMax<T>(count, x);
    const auto m = hn::Set(d, max);
    const C sum = RowSum<T>(
        count, [d, m](auto v) HWY_ATTR { return ExpOfNonPositive(d, hn::Sub(v, m)); }, x);
    const double log_sum = std::log(static_cast<double>(sum));
    static_cast<C*>(a.log_sum_exp)[row] = static_cast<C>(static_cast<double>(max) + log_sum);
    const int64_t target = a.target[row];
    if (target == a.ignore_index) {
      a.losses[row] = 0;
      continue;
    }
    // About the maximum: lse - x loses digits where both are large.
    double loss = log_sum - (Element(x, target) - static_cast<double>(max));
    if (a.label_smoothing > 0) {
      const C sum_x = RowSum<T>(
          count, [m](auto v) HWY_ATTR { return hn::Sub(v, m); }, x);
      const double smooth = log_sum - static_cast<double>(sum_x) / static_cast<double>(a.classes);
      loss = (1 - a.label_smoothing) * loss + a.label_smoothing * smooth;
    }
    a.losses[row] = loss;
  }
}

template <typename T>
void BackwardRows(const CrossEntropyArguments& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const size_t count = static_cast<size_t>(a.classes);
  const C uniform = static_cast<C>(a.label_smoothing / static_cast<double>(a.classes));
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.logits) + row * a.classes;
    T* dx = static_cast<T*>(a.dlogits) + row * a.classes;
    const int64_t target = a.target[row];
    if (target == a.ignore_index) {
      std::fill_n(dx, count, T{});
      continue;
    }
    const C lse = static_cast<const C*>(a.log_sum_exp)[row];
    const double grad =
        static_cast<double>(static_cast<const C*>(a.grad)[row * a.grad_stride]) * a.grad_scale;
    const auto l = hn::Set(d, lse);
    const auto u = hn::Set(d, uniform);
    const auto g = hn::Set(d, static_cast<C>(grad));
    const auto gradient = [&](auto v)
                              HWY_ATTR { return hn::Mul(hn::Sub(Exp(d, hn::Sub(v, l)), u), g); };
    // The target's element is a difference of two numbers near 1 where the model is sure: taken in
    // double.
    const double p = std::exp(Element(x, target) - static_cast<double>(lse));
    const double at_target = (p - static_cast<double>(uniform) - (1 - a.label_smoothing)) * grad;
    Transform(d, count, dx, gradient, x);
    StorePartial(hn::Set(d, static_cast<C>(at_target)), d, dx + target, 1);
  }
}

void CrossEntropyRows(DType dtype, const CrossEntropyArguments& a, int64_t begin, int64_t end) {
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

void CrossEntropyBackwardRows(DType dtype, const CrossEntropyArguments& a, int64_t begin,
                              int64_t end) {
  switch (dtype) {
    case DType::kBFloat16:
      return BackwardRows<bfloat16>(a, begin, end);
    case DType::kFloat16:
      return BackwardRows<float16>(a, begin, end);
    case DType::kFloat64:
      return BackwardRows<double>(a, begin, end);
    default:
      return BackwardRows<float>(a, begin, end);
  }
}

}  // namespace
}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(CrossEntropyRows);
HWY_EXPORT(CrossEntropyBackwardRows);

constexpr int64_t kChunkElements = 8192;

int64_t ChunkRows(int64_t classes) {
  return std::max<int64_t>(1, kChunkElements / std::max<int64_t>(classes, 1));
}

// Checks every target and returns how many count.
int64_t CheckTargets(const int64_t* target, int64_t rows, int64_t classes, int64_t ignore_index) {
  int64_t counted = 0;
  for (int64_t i = 0; i < rows; ++i) {
    if (target[i] == ignore_index) continue;
    if (target[i] < 0 || target[i] >= classes) {
      throw OutOfRangeError(absl::StrFormat(
          "CrossEntropy: target[%d] is %d, outside the classes [0, %d) of logits [%d, %d] and not "
          "ignore_index %d",
          i, target[i], classes, rows, classes, ignore_index));
    }
    ++counted;
  }
  return counted;
}

// One loss of a double, rounded once to the output's dtype.
void StoreLosses(const double* losses, int64_t count, const Tensor& output) {
  ConvertElements(DType::kFloat64, output.dtype(), count, losses, KernelRawData(output));
}

}  // namespace

void CrossEntropyKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                        const Scalars& scalars, const Attributes& attributes) {
  const auto& options = attributes.As<CrossEntropyAttributes>();
  const DType dtype = inputs[0].dtype();
  const int64_t rows = inputs[0].shape()[0];
  const PackedInput logits(context, inputs[0]), target(context, inputs[1]);
  CrossEntropyArguments a{};
  a.logits = logits.raw();
  a.target = target.data<int64_t>();
  a.classes = inputs[0].shape()[1];
  a.ignore_index = options.ignore_index;
  a.label_smoothing = scalars[0].AsDouble();
  a.log_sum_exp = KernelRawData(outputs[1]);
  const int64_t counted = CheckTargets(a.target, rows, a.classes, a.ignore_index);
  a.losses = context.Workspace<double>(rows);
  context.ParallelFor(rows, ChunkRows(a.classes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CrossEntropyRows)(dtype, a, begin, end);
  });
  if (options.reduction == Reduction::kNone) return StoreLosses(a.losses, rows, outputs[0]);
  double total = 0;
  for (int64_t i = 0; i < rows; ++i) total += a.losses[i];
  if (options.reduction == Reduction::kMean) total /= static_cast<double>(counted);
  StoreLosses(&total, 1, outputs[0]);
}

void CrossEntropyBackwardKernel(KernelContext& context, TensorSpan inputs,
                                absl::Span<Tensor> outputs, const Scalars& scalars,
                                const Attributes& attributes) {
  const auto& options = attributes.As<CrossEntropyAttributes>();
  const DType dtype = inputs[1].dtype();
  const int64_t rows = inputs[1].shape()[0];
  const PackedInput logits(context, inputs[1]), target(context, inputs[2]);
  const PackedInput log_sum_exp(context, inputs[3]);
  CrossEntropyArguments a{};
  a.logits = logits.raw();
  a.target = target.data<int64_t>();
  a.classes = inputs[1].shape()[1];
  a.ignore_index = options.ignore_index;
  a.label_smoothing = scalars[0].AsDouble();
  a.log_sum_exp = const_cast<void*>(log_sum_exp.raw());
  a.grad = PackedAs(context, inputs[0], ComputeDType(dtype));
  a.grad_stride = options.reduction == Reduction::kNone ? 1 : 0;
  const int64_t counted = CheckTargets(a.target, rows, a.classes, a.ignore_index);
  a.grad_scale = options.reduction == Reduction::kMean ? 1.0 / static_cast<double>(counted) : 1.0;
  a.dlogits = KernelRawData(outputs[0]);
  context.ParallelFor(rows, ChunkRows(a.classes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CrossEntropyBackwardRows)(dtype, a, begin, end);
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
