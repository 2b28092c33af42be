// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Causal attention and its gradient. FLOP/s counts the products of the whole square, 2 * B * H * T
// * T * (D + E) forward and two and a half times that backward, as if nothing were masked: blocks
// above the diagonal are left out, so that long sequences show up to twice the machine's rate.
#include <cstdint>

#include "benchmark/benchmark.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::cpu {
namespace {

struct Operands {
  Operands(const benchmark::State& state) {  // NOLINT
    SetIntraOpThreads(1);
    const Shape shape = {state.range(0), state.range(1), state.range(2), state.range(3)};
    q = RandomNormal(shape);
    k = RandomNormal(shape);
    v = RandomNormal(shape);
    grad = RandomNormal(shape);
    attributes.causal = true;
    scalars = {0.125, state.range(4) / 100.0, 1, 2, 0};
    flops = 4.0 * static_cast<double>(q.numel() * state.range(2));
  }
  Tensor q, k, v, grad;
  AttentionAttributes attributes;
  Scalars scalars;
  double flops;
};

void BM_Forward(benchmark::State& state) {
  const Operands o(state);
  const Tensor inputs[] = {o.q, o.k, o.v, Tensor()};
  for (auto _ : state) {
    Dispatch({OpId::kScaledDotProductAttention, inputs, o.scalars, o.attributes});
  }
  state.counters["FLOP/s"] =
      benchmark::Counter(o.flops, benchmark::Counter::kIsIterationInvariantRate);
}

void BM_Backward(benchmark::State& state) {
  const Operands o(state);
  const Tensor inputs[] = {o.q, o.k, o.v, Tensor()};
  const TensorList out =
      Dispatch({OpId::kScaledDotProductAttention, inputs, o.scalars, o.attributes});
  const Tensor backward[] = {o.grad, o.q, o.k, o.v, Tensor(), out[0], out[1]};
  for (auto _ : state) {
    Dispatch({OpId::kScaledDotProductAttentionBackward, backward, o.scalars, o.attributes});
  }
  state.counters["FLOP/s"] =
      benchmark::Counter(2.5 * o.flops, benchmark::Counter::kIsIterationInvariantRate);
}

// B, H, T, D, dropout in percent: nano, mini, long.
void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({6, 4, 64, 32, 0});
  benchmark->Args({6, 4, 64, 32, 10});
  benchmark->Args({2, 6, 256, 64, 0});
  benchmark->Args({1, 4, 1024, 64, 0});
  benchmark->ArgNames({"B", "H", "T", "D", "dropout"});
}
BENCHMARK(BM_Forward)->Apply(Sizes);
BENCHMARK(BM_Backward)->Apply(Sizes);

}  // namespace
}  // namespace lockstep::cpu
