// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// RmspropStep: one pass over memory, in the order of operations of torch/optim/rmsprop.py
// (single-tensor form). Hyperparameters are rounded to the type of the arithmetic: float32 (float64
// for float64).

#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/update/update_list.h"
#include "lockstep/tensor/op_attributes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/update/rmsprop_step.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/update/update_vectors-inl.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

#ifndef LOCKSTEP_TENSOR_CPU_RMSPROP_STEP_CC_
#define LOCKSTEP_TENSOR_CPU_RMSPROP_STEP_CC_
namespace lockstep::cpu {
namespace {

struct RmspropNumbers {
  double lr;
  double alpha;
  double alpha_rest;  // 1 - alpha
  double epsilon;
  double weight_decay;
  double momentum;
  bool use_momentum;
  bool centered;
  bool maximize;
};

}  // namespace
}  // namespace lockstep::cpu
#endif  // LOCKSTEP_TENSOR_CPU_RMSPROP_STEP_CC_

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// States: the averages of squares, the momentum buffer, the averages of gradients.
template <typename T, typename S>
void RmspropElements(const RmspropNumbers& n, const UpdateElements<T, S>& e) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const auto lr = hn::Set(d, static_cast<C>(-n.lr));
  const auto alpha = hn::Set(d, static_cast<C>(n.alpha));
  const auto alpha_rest = hn::Set(d, static_cast<C>(n.alpha_rest));
  // torch.lerp starts from the nearer end.
  const bool from_average = n.alpha_rest < 0.5;
  const auto weight = hn::Set(d, static_cast<C>(from_average ? n.alpha_rest : n.alpha_rest - 1));
  const auto epsilon = hn::Set(d, static_cast<C>(n.epsilon));
  const auto weight_decay = hn::Set(d, static_cast<C>(n.weight_decay));
  const auto momentum = hn::Set(d, static_cast<C>(n.momentum));
  const auto sign = hn::Set(d, n.maximize ? C{-1} : C{1});
  const bool decays = n.weight_decay != 0, centered = n.centered, use_momentum = n.use_momentum;
  UpdateVectors(d, e, [&](auto& p, auto g, auto& square, auto& buffer, auto& mean) HWY_ATTR {
    g = hn::Mul(g, sign);
    if (decays) g = hn::MulAdd(weight_decay, p, g);
    square = hn::MulAdd(hn::Mul(alpha_rest, g), g, hn::Mul(square, alpha));
    auto variance = square;
    if (centered) {
      mean = hn::MulAdd(weight, hn::Sub(g, mean), from_average ? mean : g);
      variance = hn::NegMulAdd(mean, mean, square);
    }
    const auto denominator = hn::Add(hn::Sqrt(variance), epsilon);
    if (use_momentum) {
      buffer = hn::Add(hn::Mul(buffer, momentum), hn::Div(g, denominator));
      p = hn::MulAdd(lr, buffer, p);
    } else {
      p = hn::Add(p, hn::Div(hn::Mul(lr, g), denominator));
    }
  });
}

void RmspropChunk(const RmspropNumbers& n, const UpdateOperands& o, int64_t begin, int64_t count) {
  WithUpdateTypes(o, begin, count, [&](const auto& e) HWY_ATTR { RmspropElements(n, e); });
}

}  // namespace
}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(RmspropChunk);

}  // namespace

void RmspropStepKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor>,
                       const Scalars& scalars, const Attributes& attributes) {
  const auto& options = attributes.As<RmspropAttributes>();
  RmspropNumbers n;
  n.lr = scalars[0].AsDouble();
  n.alpha = scalars[1].AsDouble();
  n.alpha_rest = 1 - n.alpha;
  n.epsilon = scalars[2].AsDouble();
  n.weight_decay = scalars[3].AsDouble();
  n.momentum = scalars[4].AsDouble();
  n.use_momentum = options.use_momentum;
  n.centered = options.centered;
  n.maximize = options.maximize;
  const UpdateList list(context, inputs, inputs.size() / 5,
                        {.states = {2, options.use_momentum ? 3 : -1, options.centered ? 4 : -1}});
  list.Run(context, [&](const UpdateOperands& o, int64_t begin, int64_t count) {
    HWY_DYNAMIC_DISPATCH(RmspropChunk)(n, o, begin, count);
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
