// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// SgdStep: one pass over memory, in the order of operations of torch/optim/sgd.py (single-tensor
// form). Hyperparameters are rounded to the type of the arithmetic: float32 (float64 for float64).

#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/update/update_list.h"
#include "lockstep/tensor/op_attributes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/update/sgd_step.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/update/update_vectors-inl.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

#ifndef LOCKSTEP_TENSOR_CPU_SGD_STEP_CC_
#define LOCKSTEP_TENSOR_CPU_SGD_STEP_CC_
namespace lockstep::cpu {
namespace {

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

}  // namespace
}  // namespace lockstep::cpu
#endif  // LOCKSTEP_TENSOR_CPU_SGD_STEP_CC_

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// State: the momentum buffer.
template <typename T, typename S>
void SgdElements(const SgdNumbers& n, const UpdateElements<T, S>& e) {
  using C = ComputeType<T>;
  const hn::ScalableTag<C> d;
  const auto lr = hn::Set(d, static_cast<C>(-n.lr));
  const auto momentum = hn::Set(d, static_cast<C>(n.momentum));
  const auto dampening_rest = hn::Set(d, static_cast<C>(n.dampening_rest));
  const auto weight_decay = hn::Set(d, static_cast<C>(n.weight_decay));
  const auto sign = hn::Set(d, n.maximize ? C{-1} : C{1});
  const bool decays = n.weight_decay != 0;
  UpdateVectors(d, e, [&](auto& p, auto g, auto& b, auto&, auto&) HWY_ATTR {
    g = hn::Mul(g, sign);
    if (decays) g = hn::MulAdd(weight_decay, p, g);
    if (n.use_momentum) {
      b = n.first_step ? g : hn::MulAdd(dampening_rest, g, hn::Mul(b, momentum));
      g = n.nesterov ? hn::MulAdd(momentum, b, g) : b;
    }
    p = hn::MulAdd(lr, g, p);
  });
}

void SgdChunk(const SgdNumbers& n, const UpdateOperands& o, int64_t begin, int64_t count) {
  WithUpdateTypes(o, begin, count, [&](const auto& e) HWY_ATTR { SgdElements(n, e); });
}

}  // namespace
}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(SgdChunk);

}  // namespace

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
  const UpdateList list(context, inputs, inputs.size() / 3,
                        {.states = {options.use_momentum ? 2 : -1, -1, -1}});
  list.Run(context, [&](const UpdateOperands& o, int64_t begin, int64_t count) {
    HWY_DYNAMIC_DISPATCH(SgdChunk)(n, o, begin, count);
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
