// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// AdamWStep and SgdStep: one pass over the memory of all parameters. The order of operations is
// PyTorch's (torch/optim/adamw.py and sgd.py, single-tensor form): hyperparameters are combined in
// float64 and rounded to the type of the arithmetic, which is float32 (float64 for float64).

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/pack.h"
#include "lockstep/tensor/cpu/tensor_chunks.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op_attributes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/optimizer_step.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

#ifndef LOCKSTEP_TENSOR_CPU_OPTIMIZER_STEP_CC_
#define LOCKSTEP_TENSOR_CPU_OPTIMIZER_STEP_CC_
namespace lockstep::cpu {
namespace {

// What one step multiplies with.
struct AdamWNumbers {
  double decay;       // 1 - lr * weight_decay
  double beta1_rest;  // 1 - beta1
  double beta2;
  double beta2_rest;  // 1 - beta2
  double step_size;   // lr / (1 - beta1^step)
  double bias2_root;  // sqrt(1 - beta2^step)
  double epsilon;
  bool maximize;
};

struct SgdNumbers {
  double lr;
  double momentum;
  double dampening_rest;  // 1 - dampening
  double weight_decay;
  bool use_momentum;
  bool first_step;
  bool nesterov;
  bool maximize;
};

// One parameter's memory: parameter, gradient and state, packed.
struct UpdateOperands {
  DType dtype;
  DType state_dtype;
  void* parameter;
  const void* gradient;
  void* state0;  // exp_avg or the momentum buffer
  void* state1;  // exp_avg_sq
};

}  // namespace
}  // namespace lockstep::cpu
#endif  // LOCKSTEP_TENSOR_CPU_OPTIMIZER_STEP_CC_

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// T: parameter and gradient; S: state; computed in the wider of both.
template <typename T, typename S>
void AdamWElements(const AdamWNumbers& n, T* parameter, const T* gradient, S* exp_avg,
                   S* exp_avg_sq, size_t count) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const auto decay = hn::Set(d, static_cast<C>(n.decay));
  // torch.lerp starts from the nearer end.
  const bool from_average = n.beta1_rest < 0.5;
  const auto weight = hn::Set(d, static_cast<C>(from_average ? n.beta1_rest : n.beta1_rest - 1));
  const auto beta2 = hn::Set(d, static_cast<C>(n.beta2));
  const auto beta2_rest = hn::Set(d, static_cast<C>(n.beta2_rest));
  const auto step_size = hn::Set(d, static_cast<C>(-n.step_size));
  const auto bias2_root = hn::Set(d, static_cast<C>(n.bias2_root));
  const auto epsilon = hn::Set(d, static_cast<C>(n.epsilon));
  const auto sign = hn::Set(d, n.maximize ? C{-1} : C{1});
  const auto update = [&](auto& p, auto g, auto& m, auto& v) HWY_ATTR {
    g = hn::Mul(g, sign);
    p = hn::Mul(p, decay);
    m = hn::MulAdd(weight, hn::Sub(g, m), from_average ? m : g);
    v = hn::MulAdd(hn::Mul(beta2_rest, g), g, hn::Mul(v, beta2));
    const auto denominator = hn::Add(hn::Div(hn::Sqrt(v), bias2_root), epsilon);
    p = hn::Add(p, hn::Div(hn::Mul(step_size, m), denominator));
  };
  ForEachVector(
      d, count,
      [&](size_t at, size_t lanes) HWY_ATTR {
        auto p = LoadPartial(d, parameter + at, lanes);
        auto m = LoadPartial(d, exp_avg + at, lanes);
        auto v = LoadPartial(d, exp_avg_sq + at, lanes);
        update(p, LoadPartial(d, gradient + at, lanes), m, v);
        StorePartial(p, d, parameter + at, lanes);
        StorePartial(m, d, exp_avg + at, lanes);
        StorePartial(v, d, exp_avg_sq + at, lanes);
      },
      [&](size_t at) HWY_ATTR {
        auto p = LoadFull(d, parameter + at);
        auto m = LoadFull(d, exp_avg + at);
        auto v = LoadFull(d, exp_avg_sq + at);
        update(p, LoadFull(d, gradient + at), m, v);
        StoreFull(p, d, parameter + at);
        StoreFull(m, d, exp_avg + at);
        StoreFull(v, d, exp_avg_sq + at);
      });
}

template <typename T, typename S>
void SgdElements(const SgdNumbers& n, T* parameter, const T* gradient, S* momenta, size_t count) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const auto lr = hn::Set(d, static_cast<C>(-n.lr));
  const auto momentum = hn::Set(d, static_cast<C>(n.momentum));
  const auto dampening_rest = hn::Set(d, static_cast<C>(n.dampening_rest));
  const auto weight_decay = hn::Set(d, static_cast<C>(n.weight_decay));
  const auto sign = hn::Set(d, n.maximize ? C{-1} : C{1});
  const bool decays = n.weight_decay != 0;
  // `b` is the momentum buffer, unused without momentum.
  const auto update = [&](auto& p, auto g, auto& b) HWY_ATTR {
    g = hn::Mul(g, sign);
    if (decays) g = hn::MulAdd(weight_decay, p, g);
    if (n.use_momentum) {
      b = n.first_step ? g : hn::MulAdd(dampening_rest, g, hn::Mul(b, momentum));
      g = n.nesterov ? hn::MulAdd(momentum, b, g) : b;
    }
    p = hn::MulAdd(lr, g, p);
  };
  const auto zero = hn::Zero(d);
  ForEachVector(
      d, count,
      [&](size_t at, size_t lanes) HWY_ATTR {
        auto p = LoadPartial(d, parameter + at, lanes);
        auto b = n.use_momentum ? LoadPartial(d, momenta + at, lanes) : zero;
        update(p, LoadPartial(d, gradient + at, lanes), b);
        StorePartial(p, d, parameter + at, lanes);
        if (n.use_momentum) StorePartial(b, d, momenta + at, lanes);
      },
      [&](size_t at) HWY_ATTR {
        auto p = LoadFull(d, parameter + at);
        auto b = n.use_momentum ? LoadFull(d, momenta + at) : zero;
        update(p, LoadFull(d, gradient + at), b);
        StoreFull(p, d, parameter + at);
        if (n.use_momentum) StoreFull(b, d, momenta + at);
      });
}

template <typename T, typename S>
void AdamWChunk(const AdamWNumbers& n, const UpdateOperands& o, int64_t begin, int64_t count) {
  AdamWElements(n, static_cast<T*>(o.parameter) + begin, static_cast<const T*>(o.gradient) + begin,
                static_cast<S*>(o.state0) + begin, static_cast<S*>(o.state1) + begin,
                static_cast<size_t>(count));
}

template <typename T, typename S>
void SgdChunk(const SgdNumbers& n, const UpdateOperands& o, int64_t begin, int64_t count) {
  SgdElements(n, static_cast<T*>(o.parameter) + begin, static_cast<const T*>(o.gradient) + begin,
              n.use_momentum ? static_cast<S*>(o.state0) + begin : nullptr,
              static_cast<size_t>(count));
}

void AdamWChunkOf(const AdamWNumbers& n, const UpdateOperands& o, int64_t begin, int64_t count) {
  const bool wide = o.state_dtype == DType::kFloat32;
  switch (o.dtype) {
    case DType::kBFloat16:
      return wide ? AdamWChunk<bfloat16, float>(n, o, begin, count)
                  : AdamWChunk<bfloat16, bfloat16>(n, o, begin, count);
    case DType::kFloat16:
      return wide ? AdamWChunk<float16, float>(n, o, begin, count)
                  : AdamWChunk<float16, float16>(n, o, begin, count);
    case DType::kFloat64:
      return AdamWChunk<double, double>(n, o, begin, count);
    default:
      return AdamWChunk<float, float>(n, o, begin, count);
  }
}

void SgdChunkOf(const SgdNumbers& n, const UpdateOperands& o, int64_t begin, int64_t count) {
  const bool wide = o.state_dtype == DType::kFloat32;
  switch (o.dtype) {
    case DType::kBFloat16:
      return wide ? SgdChunk<bfloat16, float>(n, o, begin, count)
                  : SgdChunk<bfloat16, bfloat16>(n, o, begin, count);
    case DType::kFloat16:
      return wide ? SgdChunk<float16, float>(n, o, begin, count)
                  : SgdChunk<float16, float16>(n, o, begin, count);
    case DType::kFloat64:
      return SgdChunk<double, double>(n, o, begin, count);
    default:
      return SgdChunk<float, float>(n, o, begin, count);
  }
}

}  // namespace
}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(AdamWChunkOf);
HWY_EXPORT(SgdChunkOf);

// The operands of every parameter, packed; what had to be copied is written back by Finish().
class UpdateList {
 public:
  // `states` lists of `count` tensors follow the parameters and the gradients.
  UpdateList(KernelContext& context, TensorSpan inputs, size_t count, size_t states)
      : parameters_(inputs.subspan(0, count)) {
    operands_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      UpdateOperands o{};
      o.dtype = inputs[i].dtype();
      o.state_dtype = states > 0 ? inputs[2 * count + i].dtype() : o.dtype;
      o.parameter = Add(context, inputs[i]);
      o.gradient = PackedInput(context, inputs[count + i]).raw();
      if (states > 0) o.state0 = Add(context, inputs[2 * count + i]);
      if (states > 1) o.state1 = Add(context, inputs[3 * count + i]);
      operands_.push_back(o);
    }
  }

  template <typename Chunk>
  void Run(const KernelContext& context, const Chunk& chunk) const {
    const std::vector<TensorChunk> chunks = MakeTensorChunks(parameters_);
    context.ParallelFor(static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        chunk(operands_[chunks[i].tensor], chunks[i].begin, chunks[i].count);
      }
    });
    for (const PackedInOut& copy : copies_) copy.Finish(context);
  }

 private:
  void* Add(KernelContext& context, const Tensor& tensor) {
    PackedInOut packed(context, tensor);
    if (!tensor.is_contiguous()) copies_.push_back(packed);
    return packed.raw();
  }

  TensorSpan parameters_;
  std::vector<UpdateOperands> operands_;
  std::vector<PackedInOut> copies_;
};

}  // namespace

void AdamWStepKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor>,
                     const Scalars& scalars, const Attributes& attributes) {
  const double lr = scalars[0].AsDouble(), beta1 = scalars[1].AsDouble();
  const double beta2 = scalars[2].AsDouble(), step = scalars[5].AsDouble();
  AdamWNumbers n;
  n.decay = 1 - lr * scalars[4].AsDouble();
  n.beta1_rest = 1 - beta1;
  n.beta2 = beta2;
  n.beta2_rest = 1 - beta2;
  n.step_size = lr / (1 - std::pow(beta1, step));
  n.bias2_root = std::sqrt(1 - std::pow(beta2, step));
  n.epsilon = scalars[3].AsDouble();
  n.maximize = attributes.As<AdamWAttributes>().maximize;
  const UpdateList list(context, inputs, inputs.size() / 4, 2);
  list.Run(context, [&](const UpdateOperands& o, int64_t begin, int64_t count) {
    HWY_DYNAMIC_DISPATCH(AdamWChunkOf)(n, o, begin, count);
  });
}

void SgdStepKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor>,
                   const Scalars& scalars, const Attributes& attributes) {
  const auto& options = attributes.As<SgdAttributes>();
  SgdNumbers n;
  n.lr = scalars[0].AsDouble();
  n.momentum = scalars[1].AsDouble();
  n.dampening_rest = 1 - scalars[2].AsDouble();
  n.weight_decay = scalars[3].AsDouble();
  n.use_momentum = options.use_momentum;
  n.first_step = options.first_step;
  n.nesterov = options.nesterov;
  n.maximize = options.maximize;
  // Without momentum its list is left out or holds undefined tensors.
  const bool has_list = options.use_momentum || (!inputs.empty() && !inputs.back().defined());
  const UpdateList list(context, inputs, inputs.size() / (has_list ? 3 : 2),
                        options.use_momentum ? 1 : 0);
  list.Run(context, [&](const UpdateOperands& o, int64_t begin, int64_t count) {
    HWY_DYNAMIC_DISPATCH(SgdChunkOf)(n, o, begin, count);
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
