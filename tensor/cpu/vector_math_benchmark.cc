// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Vector functions against the C library's, over 32768 floats (128 KiB, in the second-level cache).
//
//   bazel run //tensor/cpu:vector_math_benchmark
//
// items_per_second counts elements; its inverse is the time of one. The row Copy is the floor that
// memory sets.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "benchmark/benchmark.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/vector_math_benchmark.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/activations-inl.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"
#include "lockstep/tensor/cpu/vector_math-inl.h"

// One line a function: X(name).
// clang-format off
#define LOCKSTEP_MEASURED_FUNCTIONS(X) \
  X(Exp) \
  X(Exp2) \
  X(Expm1) \
  X(Log) \
  X(Log1p) \
  X(Tanh) \
  X(Erf) \
  X(Rsqrt) \
  X(Pow) \
  X(Sigmoid) \
  X(GeluTanh) \
  X(GeluTanhDerivative) \
  X(GeluErf) \
  X(GeluErfDerivative) \
  X(Copy)
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

template <class D, class V>
HWY_INLINE V Copy(D, V x) {
  return x;
}
template <class D, class V>
HWY_INLINE V Pow(D d, V x) {
  return Pow(d, x, hn::Set(d, 1.7f));
}

#define LOCKSTEP_DEFINE(name)                                             \
  void name##Floats(const float* from, float* to, size_t count) {         \
    const hn::ScalableTag<float> d;                                       \
    Transform(                                                            \
        d, count, to, [&](auto x) HWY_ATTR { return name(d, x); }, from); \
  }
LOCKSTEP_MEASURED_FUNCTIONS(LOCKSTEP_DEFINE)
#undef LOCKSTEP_DEFINE

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace lockstep::cpu {
namespace {

constexpr size_t kCount = 32768;

void Measure(benchmark::State& state, void (*function)(const float*, float*, size_t)) {
  std::vector<float> from(kCount);
  std::vector<float> to(kCount);
  for (size_t i = 0; i < kCount; ++i) from[i] = static_cast<float>(i % 1000) * 0.01f - 4.995f;
  for (auto _ : state) {
    function(from.data(), to.data(), kCount);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kCount));
}

template <float (*function)(float)>
void CLibrary(const float* from, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = function(from[i]);
}

#define LOCKSTEP_MEASURE(name)                                                                    \
  HWY_EXPORT(name##Floats);                                                                       \
  void BM_##name(benchmark::State& state) { Measure(state, HWY_DYNAMIC_DISPATCH(name##Floats)); } \
  BENCHMARK(BM_##name);
LOCKSTEP_MEASURED_FUNCTIONS(LOCKSTEP_MEASURE)
#undef LOCKSTEP_MEASURE

BENCHMARK_CAPTURE(Measure, std_exp, &CLibrary<std::exp>);
BENCHMARK_CAPTURE(Measure, std_log, &CLibrary<std::log>);
BENCHMARK_CAPTURE(Measure, std_tanh, &CLibrary<std::tanh>);
BENCHMARK_CAPTURE(Measure, std_erf, &CLibrary<std::erf>);

}  // namespace
}  // namespace lockstep::cpu

#endif  // HWY_ONCE
