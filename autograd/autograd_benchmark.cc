// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Cost of a call, of recording it and of running backward. Budget for an Add of one element
// (docs/architecture.md): 150 ns without recording and 500 ns recorded, on a machine where BM_Floor
// takes 85 ns.
//
//   ./bazelw run //autograd:autograd_benchmark

#include <cstdlib>
#include <mutex>

#include "benchmark/benchmark.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd {
namespace {

// What a new tensor costs at the least: an aligned block, two objects around it, and counting the
// bytes under a lock when they come and go.
void BM_Floor(benchmark::State& state) {
  std::mutex mutex;
  int64_t current = 0, peak = 0;
  const auto count = [&](int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    current += bytes;
    if (current > peak) peak = current;
    benchmark::DoNotOptimize(peak);
  };
  for (auto _ : state) {
    void* data = nullptr;
    benchmark::DoNotOptimize(posix_memalign(&data, 64, sizeof(float)));
    void* const storage = operator new(sizeof(Storage));
    void* const impl = operator new(sizeof(TensorImpl));
    benchmark::DoNotOptimize(storage);
    benchmark::DoNotOptimize(impl);
    count(sizeof(float));
    operator delete(impl);
    operator delete(storage);
    std::free(data);
    count(-static_cast<int64_t>(sizeof(float)));
  }
}
BENCHMARK(BM_Floor);

void BM_AddWithoutRecording(benchmark::State& state) {
  const Tensor x = SetRequiresGrad(Ones({1}), true), y = Ones({1});
  NoGradScope no_grad;
  for (auto _ : state) benchmark::DoNotOptimize(Add(x, y));
}
BENCHMARK(BM_AddWithoutRecording);

void BM_AddNothingRequiresGrad(benchmark::State& state) {
  const Tensor x = Ones({1}), y = Ones({1});
  for (auto _ : state) benchmark::DoNotOptimize(Add(x, y));
}
BENCHMARK(BM_AddNothingRequiresGrad);

void BM_AddRecorded(benchmark::State& state) {
  const Tensor x = SetRequiresGrad(Ones({1}), true), y = Ones({1});
  for (auto _ : state) benchmark::DoNotOptimize(Add(x, y));
}
BENCHMARK(BM_AddRecorded);

void BM_MulRecordedWithSaves(benchmark::State& state) {
  const Tensor x = Mul(SetRequiresGrad(Ones({1}), true), 1.0), y = Mul(x, 1.0);
  for (auto _ : state) benchmark::DoNotOptimize(Mul(x, y));
}
BENCHMARK(BM_MulRecordedWithSaves);

// One iteration: forward and backward over a chain; items are ops.
void BM_ChainForwardBackward(benchmark::State& state) {
  const Tensor x = SetRequiresGrad(Ones({1}), true), one = Ones({1});
  for (auto _ : state) {
    Tensor y = x;
    for (int i = 0; i < state.range(0); ++i) y = Add(y, one);
    Backward(y);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_ChainForwardBackward)->Arg(1000);

void BM_ChainBackward(benchmark::State& state) {
  const Tensor x = SetRequiresGrad(Ones({1}), true), one = Ones({1});
  Tensor y = x;
  for (int i = 0; i < state.range(0); ++i) y = Add(y, one);
  for (auto _ : state) Backward(y, {.retain_graph = true});
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_ChainBackward)->Arg(1000);

}  // namespace
}  // namespace lockstep::autograd
