// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// AdamStep: Adam (Kingma and Ba 2015), AdamW (Loshchilov and Hutter 2019) and their AMSGrad forms
// (Reddi, Kale and Kumar 2018), in one pass over memory. The order of operations is PyTorch's
// (torch/optim/adam.py, single-tensor form): hyperparameters are combined in float64 and rounded to
// the type of the arithmetic, which is float32 (float64 for float64).

#include <cmath>
#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/update/update_list.h"
#include "lockstep/tensor/op_attributes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/update/adam_step.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/update/update_vectors-inl.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

#ifndef LOCKSTEP_TENSOR_CPU_ADAM_STEP_CC_
#define LOCKSTEP_TENSOR_CPU_ADAM_STEP_CC_
namespace lockstep::cpu {
namespace {

// What one step multiplies with.
struct AdamNumbers {
  double shrink;          // 1 - lr * weight_decay with decoupled decay, else 1
  double gradient_decay;  // weight_decay without decoupled decay, else 0
  double beta1_rest;      // 1 - beta1
  double beta2;
  double beta2_rest;  // 1 - beta2
  double step_size;   // lr / (1 - beta1^step)
  double bias2_root;  // sqrt(1 - beta2^step)
  double epsilon;
  bool amsgrad;
  bool maximize;
};

}  // namespace
}  // namespace lockstep::cpu
#endif  // LOCKSTEP_TENSOR_CPU_ADAM_STEP_CC_

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// States: exp_avg, exp_avg_sq, max_exp_avg_sq.
template <typename T, typename S>
void AdamElements(const AdamNumbers& n, const UpdateElements<T, S>& e) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const auto shrink = hn::Set(d, static_cast<C>(n.shrink));
  const auto gradient_decay = hn::Set(d, static_cast<C>(n.gradient_decay));
  const bool decays_gradient = n.gradient_decay != 0;
  // torch.lerp starts from the nearer end.
  const bool from_average = n.beta1_rest < 0.5;
  const auto weight = hn::Set(d, static_cast<C>(from_average ? n.beta1_rest : n.beta1_rest - 1));
  const auto beta2 = hn::Set(d, static_cast<C>(n.beta2));
  const auto beta2_rest = hn::Set(d, static_cast<C>(n.beta2_rest));
  const auto step_size = hn::Set(d, static_cast<C>(-n.step_size));
  const auto bias2_root = hn::Set(d, static_cast<C>(n.bias2_root));
  const auto epsilon = hn::Set(d, static_cast<C>(n.epsilon));
  const auto sign = hn::Set(d, n.maximize ? C{-1} : C{1});
  const bool amsgrad = n.amsgrad;
  UpdateVectors(d, e, [&](auto& p, auto g, auto& m, auto& v, auto& largest) HWY_ATTR {
    g = hn::Mul(g, sign);
    p = hn::Mul(p, shrink);
    if (decays_gradient) g = hn::MulAdd(gradient_decay, p, g);
    m = hn::MulAdd(weight, hn::Sub(g, m), from_average ? m : g);
    v = hn::MulAdd(hn::Mul(beta2_rest, g), g, hn::Mul(v, beta2));
    // A NaN of v, which stays there, comes through; hn::Max would not say which operand wins.
    if (amsgrad) largest = hn::IfThenElse(hn::Gt(largest, v), largest, v);
    const auto root = hn::Sqrt(amsgrad ? largest : v);
    const auto denominator = hn::Add(hn::Div(root, bias2_root), epsilon);
    p = hn::Add(p, hn::Div(hn::Mul(step_size, m), denominator));
  });
}

void AdamChunk(const AdamNumbers& n, const UpdateOperands& o, int64_t begin, int64_t count) {
  WithUpdateTypes(o, begin, count, [&](const auto& e) HWY_ATTR { AdamElements(n, e); });
}

}  // namespace
}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(AdamChunk);

}  // namespace

void AdamStepKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor>,
                    const Scalars& scalars, const Attributes& attributes) {
  const auto& options = attributes.As<AdamAttributes>();
  const double lr = scalars[0].AsDouble(), beta1 = scalars[1].AsDouble();
  const double beta2 = scalars[2].AsDouble(), decay = scalars[4].AsDouble();
  const double step = scalars[5].AsDouble();
  AdamNumbers n;
  n.shrink = options.decoupled_decay ? 1 - lr * decay : 1;
  n.gradient_decay = options.decoupled_decay ? 0 : decay;
  n.beta1_rest = 1 - beta1;
  n.beta2 = beta2;
  n.beta2_rest = 1 - beta2;
  n.step_size = lr / (1 - std::pow(beta1, step));
  n.bias2_root = std::sqrt(1 - std::pow(beta2, step));
  n.epsilon = scalars[3].AsDouble();
  n.amsgrad = options.amsgrad;
  n.maximize = options.maximize;
  const UpdateList list(context, inputs, inputs.size() / 5,
                        {.states = {2, 3, options.amsgrad ? 4 : -1}});
  list.Run(context, [&](const UpdateOperands& o, int64_t begin, int64_t count) {
    HWY_DYNAMIC_DISPATCH(AdamChunk)(n, o, begin, count);
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
