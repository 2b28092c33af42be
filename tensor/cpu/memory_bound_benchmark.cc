// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Norms, losses and softmax on one thread: bytes that the op must read and write,
// each once, a second, beside memcpy of as many bytes. Sizes: the activations of a small GPT
// [384, 128], which stay in the cache, and [16384, 768], which do not.
#include <cstdint>
#include <cstring>
#include <vector>

#include "benchmark/benchmark.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/neural.h"
#include "lockstep/tensor/ops/update.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::cpu {
namespace {

Shape ShapeOf(const benchmark::State& state) { return {state.range(0), state.range(1)}; }

// `passes`: how many arrays of the shape are read or written.
void SetBytes(benchmark::State& state, int64_t passes) {
  state.SetBytesProcessed(state.iterations() * passes * state.range(0) * state.range(1) * 4);
}

void BM_Memcpy(benchmark::State& state) {
  std::vector<char> from(state.range(0) * state.range(1) * 4, 1), to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  SetBytes(state, 2);
}

void BM_Softmax(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Tensor x = RandomNormal(ShapeOf(state));
  for (auto _ : state) Softmax(x, 1);
  SetBytes(state, 2);
}

void BM_LayerNorm(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Tensor x = RandomNormal(ShapeOf(state));
  const Tensor weight = Ones({state.range(1)}), bias = Zeros({state.range(1)});
  for (auto _ : state) LayerNorm(x, weight, bias);
  SetBytes(state, 2);
}

void BM_LayerNormBackward(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Tensor x = RandomNormal(ShapeOf(state)), grad = RandomNormal(ShapeOf(state));
  const Tensor weight = Ones({state.range(1)}), bias = Zeros({state.range(1)});
  const LayerNormAttributes attributes;
  const Tensor forward[] = {x, weight, bias};
  const TensorList out = Dispatch({OpId::kLayerNorm, forward, {1e-5}, attributes});
  const Tensor backward[] = {grad, x, out[1], out[2], weight};
  for (auto _ : state) Dispatch({OpId::kLayerNormBackward, backward, {}, attributes});
  SetBytes(state, 3);
}

Tensor Targets(const benchmark::State& state) {
  std::vector<int64_t> target(state.range(0));
  for (size_t i = 0; i < target.size(); ++i) target[i] = static_cast<int64_t>(i) % state.range(1);
  return FromVector<int64_t>(target, {state.range(0)});
}

void BM_CrossEntropy(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Tensor logits = RandomNormal(ShapeOf(state)), target = Targets(state);
  for (auto _ : state) CrossEntropy(logits, target);
  SetBytes(state, 1);
}

void BM_CrossEntropyBackward(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Tensor logits = RandomNormal(ShapeOf(state)), target = Targets(state);
  const CrossEntropyAttributes attributes;
  const Tensor forward[] = {logits, target};
  const TensorList out = Dispatch({OpId::kCrossEntropy, forward, {0.0}, attributes});
  const Tensor backward[] = {Ones({}), logits, target, out[1]};
  for (auto _ : state) Dispatch({OpId::kCrossEntropyBackward, backward, {0.0}, attributes});
  SetBytes(state, 2);
}

void BM_GlobalNorm(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Tensor x[] = {RandomNormal(ShapeOf(state))};
  for (auto _ : state) GlobalNorm(x);
  SetBytes(state, 1);
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({384, 128})->Args({384, 256})->Args({16384, 768});
}
BENCHMARK(BM_Memcpy)->Apply(Sizes);
BENCHMARK(BM_Softmax)->Apply(Sizes);
BENCHMARK(BM_LayerNorm)->Apply(Sizes);
BENCHMARK(BM_LayerNormBackward)->Apply(Sizes);
BENCHMARK(BM_CrossEntropy)->Apply(Sizes);
BENCHMARK(BM_CrossEntropyBackward)->Apply(Sizes);
BENCHMARK(BM_GlobalNorm)->Apply(Sizes);

}  // namespace
}  // namespace lockstep::cpu
