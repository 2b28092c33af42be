// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Elementwise ops, casts and reductions: bytes per second (each operand and result counted once),
// beside memcpy on the same arrays with the same threads. In place where the op allows it, so that
// the figure is the kernel's and not the allocator's. Sizes: 2^15 (in the caches of a core), 5e7.
//
//   bazel run -c opt //tensor/cpu:elementwise_benchmark -- --benchmark_filter=Gelu
#include <cstdint>
#include <cstring>

#include "benchmark/benchmark.h"
#include "lockstep/base/parallel.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/neural.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

constexpr int64_t kSmall = 1 << 15;
constexpr int64_t kLarge = 50'000'000;

Tensor Numbers(int64_t count) { return RandomUniform({count}, 0.1, 1); }

void ReportBytes(benchmark::State& state, int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}

// What the machine can do: one array read, one written.
void BM_Memcpy(benchmark::State& state) {
  const Tensor x = Numbers(state.range(0));
  const Tensor y = Clone(x);
  char* to = static_cast<char*>(MutableRawData(y));
  const char* from = static_cast<const char*>(RawData(x));
  for (auto _ : state) {
    ParallelFor(IntraOpThreads(), x.bytes(), 1 << 16, [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
    benchmark::ClobberMemory();
  }
  ReportBytes(state, 2 * x.bytes());
}
BENCHMARK(BM_Memcpy)->Arg(kSmall)->Arg(kLarge)->UseRealTime();

template <typename Op>
void InPlace(benchmark::State& state, int64_t arrays, Op op) {
  const Tensor x = Numbers(state.range(0));
  const Tensor y = Numbers(state.range(0));
  for (auto _ : state) op(x, y);
  ReportBytes(state, arrays * x.bytes());
}

void BM_Add(benchmark::State& state) {
  InPlace(state, 3, [](const Tensor& x, const Tensor& y) { AddInPlace(x, y); });
}
void BM_Mul(benchmark::State& state) {
  InPlace(state, 3, [](const Tensor& x, const Tensor& y) { MulInPlace(x, y); });
}
void BM_MulScalar(benchmark::State& state) {
  InPlace(state, 2, [](const Tensor& x, const Tensor&) { MulInPlace(x, 1.0); });
}
void BM_Relu(benchmark::State& state) {
  InPlace(state, 2, [](const Tensor& x, const Tensor&) { ReluInPlace(x); });
}
// exp(-exp(...)) stays bounded; two ops an iteration.
void BM_ExpNeg(benchmark::State& state) {
  InPlace(state, 4, [](const Tensor& x, const Tensor&) { ExpInPlace(NegInPlace(x)); });
}
void BM_GeluTanh(benchmark::State& state) {
  InPlace(state, 2, [](const Tensor& x, const Tensor&) { GeluInPlace(x, GeluKind::kTanh); });
}
void BM_GeluErf(benchmark::State& state) {
  InPlace(state, 2, [](const Tensor& x, const Tensor&) { GeluInPlace(x); });
}
BENCHMARK(BM_Add)->Arg(kSmall)->Arg(kLarge)->UseRealTime();
BENCHMARK(BM_Mul)->Arg(kSmall)->Arg(kLarge)->UseRealTime();
BENCHMARK(BM_MulScalar)->Arg(kSmall)->Arg(kLarge)->UseRealTime();
BENCHMARK(BM_Relu)->Arg(kSmall)->Arg(kLarge)->UseRealTime();
BENCHMARK(BM_ExpNeg)->Arg(kSmall)->Arg(kLarge)->UseRealTime();
BENCHMARK(BM_GeluTanh)->Arg(kSmall)->Arg(kLarge)->UseRealTime();
BENCHMARK(BM_GeluErf)->Arg(kSmall)->Arg(kLarge)->UseRealTime();

void BM_CastToBFloat16(benchmark::State& state) {
  const Tensor x = Numbers(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(To(x, DType::kBFloat16));
  ReportBytes(state, x.numel() * 6);
}
BENCHMARK(BM_CastToBFloat16)->Arg(kSmall)->Arg(kLarge)->UseRealTime();

void BM_AddBFloat16(benchmark::State& state) {
  const Tensor x = To(Numbers(state.range(0)), DType::kBFloat16);
  for (auto _ : state) AddInPlace(x, x);
  ReportBytes(state, 2 * x.bytes());
}
BENCHMARK(BM_AddBFloat16)->Arg(kSmall)->Arg(kLarge)->UseRealTime();

void BM_Sum(benchmark::State& state) {
  const Tensor x = Numbers(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(Sum(x));
  ReportBytes(state, x.bytes());
}
void BM_Max(benchmark::State& state) {
  const Tensor x = Numbers(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(Max(x));
  ReportBytes(state, x.bytes());
}
BENCHMARK(BM_Sum)->Arg(kSmall)->Arg(kLarge)->UseRealTime();
BENCHMARK(BM_Max)->Arg(kSmall)->Arg(kLarge)->UseRealTime();

// Training of GPT-2: [8 x 1024, 768], 12 heads.
void BM_BiasGradient(benchmark::State& state) {
  const Tensor x = RandomUniform({8192, 768});
  for (auto _ : state) benchmark::DoNotOptimize(Sum(x, {0}));
  ReportBytes(state, x.bytes());
}
void BM_AddBias(benchmark::State& state) {
  const Tensor x = RandomUniform({8192, 768});
  const Tensor bias = RandomUniform({768});
  for (auto _ : state) AddInPlace(x, bias);
  ReportBytes(state, 2 * x.bytes());
}
void BM_CloneHeads(benchmark::State& state) {
  const Tensor x = Permute(RandomUniform({8, 1024, 12, 64}), {0, 2, 1, 3});
  for (auto _ : state) benchmark::DoNotOptimize(Clone(x));
  ReportBytes(state, 2 * x.bytes());
}
void BM_CloneTransposed(benchmark::State& state) {
  const Tensor x = Transpose(RandomUniform({8192, 768}), 0, 1);
  for (auto _ : state) benchmark::DoNotOptimize(Clone(x));
  ReportBytes(state, 2 * x.bytes());
}
BENCHMARK(BM_BiasGradient)->UseRealTime();
BENCHMARK(BM_AddBias)->UseRealTime();
BENCHMARK(BM_CloneHeads)->UseRealTime();
BENCHMARK(BM_CloneTransposed)->UseRealTime();

void BM_Dropout(benchmark::State& state) {
  const Tensor x = Numbers(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(Dropout(x, 0.1));
  ReportBytes(state, 2 * x.bytes());
}
BENCHMARK(BM_Dropout)->Arg(kSmall)->Arg(kLarge)->UseRealTime();

void BM_RandomUniform(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(RandomUniform({state.range(0)}));
  ReportBytes(state, 4 * state.range(0));
}
BENCHMARK(BM_RandomUniform)->Arg(kSmall)->Arg(kLarge)->UseRealTime();

}  // namespace
}  // namespace lockstep
