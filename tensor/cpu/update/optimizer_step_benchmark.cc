// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Optimizer steps over 10 million float32 elements, which no cache holds: bytes that a step must
// read and write, each once, a second, beside memcpy of as many elements in the same run. The first
// argument is the number of threads.
#include <cstdint>
#include <cstring>
#include <vector>

#include "benchmark/benchmark.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/update.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kCount = 10'000'000;

// Ten tensors, as a model has several.
class Elements {
 public:
  Elements() {
    for (int i = 0; i < 10; ++i) tensors_.push_back(RandomUniform({kCount / 10}, 0.5, 1.5));
  }
  operator TensorSpan() const { return tensors_; }  // NOLINT: a list of tensors.

 private:
  std::vector<Tensor> tensors_;
};

// `passes`: how many times an array is read or written.
void SetBytes(benchmark::State& state, int64_t passes) {
  state.SetBytesProcessed(state.iterations() * passes * kCount * 4);
}

void BM_Memcpy(benchmark::State& state) {
  std::vector<char> from(kCount * 4, 1), to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  SetBytes(state, 2);
}

void BM_Sgd(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Elements p, g;
  for (auto _ : state) SgdStep(p, g, {}, {.weight_decay = 0.1});
  SetBytes(state, 3);
}

void BM_SgdMomentum(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Elements p, g, b;
  for (auto _ : state) SgdStep(p, g, b, {.momentum = 0.9, .nesterov = true});
  SetBytes(state, 5);
}

void RunAdam(benchmark::State& state, bool decoupled, bool amsgrad) {
  SetIntraOpThreads(1);
  const Elements p, g, m, v, x;
  for (auto _ : state) {
    AdamStep(p, g, m, v, amsgrad ? TensorSpan(x) : TensorSpan(),
             {.weight_decay = 0.01, .decoupled_decay = decoupled, .amsgrad = amsgrad});
  }
  SetBytes(state, amsgrad ? 9 : 7);
}
void BM_AdamW(benchmark::State& state) { RunAdam(state, true, false); }
void BM_Adam(benchmark::State& state) { RunAdam(state, false, false); }
void BM_AdamAmsgrad(benchmark::State& state) { RunAdam(state, false, true); }

void BM_Rmsprop(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Elements p, g, s;
  for (auto _ : state) RmspropStep(p, g, s, {}, {}, {});
  SetBytes(state, 5);
}

void BM_RmspropMomentumCentered(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Elements p, g, s, b, a;
  for (auto _ : state) RmspropStep(p, g, s, b, a, {.momentum = 0.9, .centered = true});
  SetBytes(state, 9);
}

void BM_Adagrad(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Elements p, g, s;
  for (auto _ : state) AdagradStep(p, g, s, {});
  SetBytes(state, 5);
}

void BM_LerpInto(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Elements to, from;
  for (auto _ : state) LerpInto(to, from, 0.001);
  SetBytes(state, 3);
}

BENCHMARK(BM_Memcpy)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Sgd)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_SgdMomentum)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_AdamW)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Adam)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_AdamAmsgrad)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Rmsprop)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RmspropMomentumCentered)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Adagrad)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_LerpInto)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep::cpu
