// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ops that move rows or elements to other places: bytes that they must read and write, each once, a
// second, on one thread, beside memcpy of as many bytes. Sizes: 8192 tokens of a width of 768, and
// a vocabulary of 50304.
#include <cstdint>
#include <cstring>
#include <vector>

#include "benchmark/benchmark.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/indexing.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

constexpr int64_t kTokens = 8192;
constexpr int64_t kWidth = 768;
constexpr int64_t kVocabulary = 50304;
constexpr int64_t kBytes = 4 * kTokens * kWidth;  // of the activations

// Scattered over [0, limit).
Tensor Indices(const Shape& shape, int64_t limit) {
  const Tensor uniform = RandomUniform(shape, 0, static_cast<double>(limit));
  return To(uniform, DType::kInt64);
}

template <typename Op>
void Measure(benchmark::State& state, int64_t bytes, const Op& op) {
  for (auto _ : state) benchmark::DoNotOptimize(op());
  state.SetBytesProcessed(state.iterations() * bytes);
}

void BM_Memcpy(benchmark::State& state) {
  const std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes);
  Measure(state, 2 * kBytes, [&] { return std::memcpy(to.data(), from.data(), kBytes); });
}

void BM_Embedding(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Tensor weight = RandomUniform({kVocabulary, kWidth});
  const Tensor ids = Indices({kTokens}, kVocabulary);
  Measure(state, 2 * kBytes, [&] { return Embedding(weight, ids); });
}

// Writes every row of the gradient, and reads and writes those of the tokens.
void BM_EmbeddingBackward(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Tensor grad = RandomUniform({kTokens, kWidth});
  const Tensor ids = Indices({kTokens}, kVocabulary);
  EmbeddingBackwardAttributes attributes;
  attributes.rows = kVocabulary;
  const Tensor inputs[] = {grad, ids};
  Measure(state, 4 * kVocabulary * kWidth + 3 * kBytes,
          [&] { return Dispatch1(OpId::kEmbeddingBackward, inputs, {}, attributes); });
}

void BM_IndexSelect(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Tensor x = RandomUniform({kTokens, kWidth});
  const Tensor rows = Indices({kTokens}, kTokens);
  Measure(state, 2 * kBytes, [&] { return IndexSelect(x, 0, rows); });
}

// One element a row of logits, as of a loss: bound by misses, so bytes are whole cache lines.
void BM_GatherColumn(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Tensor x = RandomUniform({kTokens, kWidth});
  const Tensor columns = Indices({kTokens, 1}, kWidth);
  Measure(state, kTokens * 64, [&] { return Gather(x, 1, columns); });
}

void BM_ScatterAdd(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Tensor x = RandomUniform({kTokens, kWidth});
  const Tensor index = Indices({kTokens, kWidth}, kTokens);
  // x, source and result once, and twice as many bytes of indices.
  Measure(state, 5 * kBytes, [&] { return ScatterAdd(x, 0, index, x); });
}

void BM_ConcatColumns(benchmark::State& state) {
  SetIntraOpThreads(1);
  const Tensor part = RandomUniform({kTokens, kWidth / 3});
  const std::vector<Tensor> parts = {part, part, part};
  Measure(state, 2 * kBytes, [&] { return Concat(parts, 1); });
}

BENCHMARK(BM_Memcpy)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Embedding)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_EmbeddingBackward)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_IndexSelect)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_GatherColumn)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ScatterAdd)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ConcatColumns)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep
