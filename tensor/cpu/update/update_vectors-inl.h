// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The loop of an optimizer step over the elements of one chunk: loads parameter, gradient and up to
// three states, calls the step's formula on vectors, and stores what it changed. One pass over
// memory. Compiled once for each instruction set, as vector_io-inl.h, which says more.
//
//   void AdagradChunk(const Numbers& n, const UpdateOperands& o, int64_t begin, int64_t count) {
//     WithUpdateTypes(o, begin, count, [&](const auto& e) HWY_ATTR { AdagradElements(n, e); });
//   }
//   template <typename T, typename S>
//   void AdagradElements(const Numbers& n, const UpdateElements<T, S>& e) {
//     const hn::ScalableTag<ComputeType<T>> d;
//     ...
//     UpdateVectors(d, e, [&](auto& p, auto g, auto& sum, auto&, auto&) HWY_ATTR { ... });
//   }

#include <cstddef>
#include <cstdint>

#include "lockstep/tensor/cpu/update/update_list.h"
#include "lockstep/tensor/dtype.h"

// A toggle, not an include guard. See hwy/foreach_target.h.
#if defined(LOCKSTEP_TENSOR_CPU_UPDATE_UPDATE_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_TENSOR_CPU_UPDATE_UPDATE_VECTORS_INL_H_
#undef LOCKSTEP_TENSOR_CPU_UPDATE_UPDATE_VECTORS_INL_H_
#else
#define LOCKSTEP_TENSOR_CPU_UPDATE_UPDATE_VECTORS_INL_H_
#endif

#include "hwy/highway.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// T: parameter and gradient; S: states, null where the step has none.
template <typename T, typename S>
struct UpdateElements {
  T* parameter;
  const T* gradient;
  S* state0;
  S* state1;
  S* state2;
  size_t count;
};

// update(p&, g, s0&, s1&, s2&) on each vector; a state that is null is zero and not stored.
template <class D, typename T, typename S, class Update>
HWY_INLINE void UpdateVectors(D d, const UpdateElements<T, S>& e, const Update& update) {
  const auto zero = hn::Zero(d);
  ForEachVector(
      d, e.count,
      [&](size_t at, size_t lanes) HWY_ATTR {
        auto p = LoadPartial(d, e.parameter + at, lanes);
        auto s0 = e.state0 != nullptr ? LoadPartial(d, e.state0 + at, lanes) : zero;
        auto s1 = e.state1 != nullptr ? LoadPartial(d, e.state1 + at, lanes) : zero;
        auto s2 = e.state2 != nullptr ? LoadPartial(d, e.state2 + at, lanes) : zero;
        update(p, LoadPartial(d, e.gradient + at, lanes), s0, s1, s2);
        StorePartial(p, d, e.parameter + at, lanes);
        if (e.state0 != nullptr) StorePartial(s0, d, e.state0 + at, lanes);
        if (e.state1 != nullptr) StorePartial(s1, d, e.state1 + at, lanes);
        if (e.state2 != nullptr) StorePartial(s2, d, e.state2 + at, lanes);
      },
      [&](size_t at) HWY_ATTR {
        auto p = LoadFull(d, e.parameter + at);
        auto s0 = e.state0 != nullptr ? LoadFull(d, e.state0 + at) : zero;
        auto s1 = e.state1 != nullptr ? LoadFull(d, e.state1 + at) : zero;
        auto s2 = e.state2 != nullptr ? LoadFull(d, e.state2 + at) : zero;
        update(p, LoadFull(d, e.gradient + at), s0, s1, s2);
        StoreFull(p, d, e.parameter + at);
        if (e.state0 != nullptr) StoreFull(s0, d, e.state0 + at);
        if (e.state1 != nullptr) StoreFull(s1, d, e.state1 + at);
        if (e.state2 != nullptr) StoreFull(s2, d, e.state2 + at);
      });
}

template <typename T, typename S>
UpdateElements<T, S> ElementsFrom(const UpdateOperands& o, int64_t begin, int64_t count) {
  const auto state = [&](size_t k) {
    return o.states[k] == nullptr ? nullptr : static_cast<S*>(o.states[k]) + begin;
  };
  return {o.parameter == nullptr ? nullptr : static_cast<T*>(o.parameter) + begin,
          static_cast<const T*>(o.gradient) + begin,
          state(0),
          state(1),
          state(2),
          static_cast<size_t>(count)};
}

// step(UpdateElements<T, S>) with the element types of `o`.
template <class Step>
void WithUpdateTypes(const UpdateOperands& o, int64_t begin, int64_t count, const Step& step) {
  const bool wide = o.state_dtype == DType::kFloat32;
  switch (o.dtype) {
    case DType::kBFloat16:
      return wide ? step(ElementsFrom<bfloat16, float>(o, begin, count))
                  : step(ElementsFrom<bfloat16, bfloat16>(o, begin, count));
    case DType::kFloat16:
      return wide ? step(ElementsFrom<float16, float>(o, begin, count))
                  : step(ElementsFrom<float16, float16>(o, begin, count));
    case DType::kFloat64:
      return step(ElementsFrom<double, double>(o, begin, count));
    default:
      return step(ElementsFrom<float, float>(o, begin, count));
  }
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_TENSOR_CPU_UPDATE_UPDATE_VECTORS_INL_H_
