// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// AdagradStep: one pass over memory, in the order of operations of torch/optim/adagrad.py
// (single-tensor form). Hyperparameters are combined in float64 and rounded to the type of the
// arithmetic: float32 (float64 for float64).

#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/update/update_list.h"
#include "lockstep/tensor/op_attributes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/update/adagrad_step.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/update/update_vectors-inl.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

#ifndef LOCKSTEP_TENSOR_CPU_ADAGRAD_STEP_CC_
#define LOCKSTEP_TENSOR_CPU_ADAGRAD_STEP_CC_
namespace lockstep::cpu {
namespace {

struct AdagradNumbers {
  double lr;  // lr / (1 + (step - 1) * lr_decay)
  double epsilon;
  double weight_decay;
  bool maximize;
};

}  // namespace
}  // namespace lockstep::cpu
#endif  // LOCKSTEP_TENSOR_CPU_ADAGRAD_STEP_CC_

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// State: the sums of squares.
template <typename T, typename S>
void AdagradElements(const AdagradNumbers& n, const UpdateElements<T, S>& e) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const auto lr = hn::Set(d, static_cast<C>(-n.lr));
  const auto epsilon = hn::Set(d, static_cast<C>(n.epsilon));
  const auto weight_decay = hn::Set(d, static_cast<C>(n.weight_decay));
  const auto sign = hn::Set(d, n.maximize ? C{-1} : C{1});
  const bool decays = n.weight_decay != 0;
  UpdateVectors(d, e, [&](auto& p, auto g, auto& sum, auto&, auto&) HWY_ATTR {
    g = hn::Mul(g, sign);
    if (decays) g = hn::MulAdd(weight_decay, p, g);
    sum = hn::MulAdd(g, g, sum);
    p = hn::Add(p, hn::Div(hn::Mul(lr, g), hn::Add(hn::Sqrt(sum), epsilon)));
  });
}

void AdagradChunk(const AdagradNumbers& n, const UpdateOperands& o, int64_t begin, int64_t count) {
  WithUpdateTypes(o, begin, count, [&](const auto& e) HWY_ATTR { AdagradElements(n, e); });
}

}  // namespace
}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(AdagradChunk);

}  // namespace

void AdagradStepKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor>,
                       const Scalars& scalars, const Attributes& attributes) {
  AdagradNumbers n;
  n.lr = scalars[0].AsDouble() / (1 + (scalars[4].AsDouble() - 1) * scalars[1].AsDouble());
  n.epsilon = scalars[2].AsDouble();
  n.weight_decay = scalars[3].AsDouble();
  n.maximize = attributes.As<AdagradAttributes>().maximize;
  const UpdateList list(context, inputs, inputs.size() / 3, {.states = {2, -1, -1}});
  list.Run(context, [&](const UpdateOperands& o, int64_t begin, int64_t count) {
    HWY_DYNAMIC_DISPATCH(AdagradChunk)(n, o, begin, count);
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
