// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// LerpInto: destination += weight * (source - destination), as torch._foreach_lerp_, in one pass
// over memory.

#include <cstdint>
#include <type_traits>

#include "absl/types/span.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/update/update_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/update/lerp_into.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/update/update_vectors-inl.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void LerpChunk(double lerp_weight, const UpdateOperands& o, int64_t begin, int64_t count) {
  WithUpdateTypes(o, begin, count, [&](const auto& e) HWY_ATTR {
    using C = ComputeType<std::remove_cvref_t<decltype(*e.gradient)>>;
    const hn::ScalableTag<C> d;
    // torch.lerp starts from the nearer end.
    const bool from_destination = lerp_weight < 0.5;
    const auto weight =
        hn::Set(d, static_cast<C>(from_destination ? lerp_weight : lerp_weight - 1));
    const auto lerp = [&](auto to, auto from) HWY_ATTR {
      return hn::MulAdd(weight, hn::Sub(from, to), from_destination ? to : from);
    };
    Transform(d, e.count, e.state0, lerp, e.state0, e.gradient);
  });
}

}  // namespace
}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(LerpChunk);

}  // namespace

void LerpIntoKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor>,
                    const Scalars& scalars, const Attributes&) {
  const double weight = scalars[0].AsDouble();
  const UpdateList list(context, inputs, inputs.size() / 2,
                        {.parameters = -1, .gradients = 1, .states = {0, -1, -1}});
  list.Run(context, [&](const UpdateOperands& o, int64_t begin, int64_t count) {
    HWY_DYNAMIC_DISPATCH(LerpChunk)(weight, o, begin, count);
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
