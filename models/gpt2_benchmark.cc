// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// One training step of GPT-2: forward, backward, clipping, AdamW. Rates: tokens/s, and flop/s by
// flops = 6 * parameters * tokens + 6 * layers * width * block * tokens (the causal half of the
// attention), to be compared with a matrix product's on the same machine.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::models {
namespace {

void TrainStep(benchmark::State& state, const Gpt2Config& config, int64_t batch) {
  ManualSeed(1);
  Gpt2 model(config);
  optim::AdamW optimizer(model.NamedParameters(), {.lr = 1e-3});
  std::vector<int64_t> tokens(static_cast<size_t>(batch * config.block));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int64_t>((i * 7919) % static_cast<size_t>(config.vocabulary));
  }
  const Tensor ids = FromVector<int64_t>(tokens, {batch, config.block});
  for (auto _ : state) {
    optimizer.ZeroGrad();
    autograd::Backward(model.Loss(ids, ids));
    optim::ClipGradNorm(model.Parameters(), 1.0);
    optimizer.Step();
  }
  const double parameters = static_cast<double>(model.ParameterCount());
  const double count = static_cast<double>(batch * config.block);
  const double attention = 6.0 * static_cast<double>(config.layers * config.width * config.block);
  state.counters["tokens"] =
      benchmark::Counter(count, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["flops"] = benchmark::Counter((6 * parameters + attention) * count,
                                               benchmark::Counter::kIsIterationInvariantRate);
}

void BM_TrainStepNano(benchmark::State& state) { TrainStep(state, Gpt2Preset("nano"), 12); }
void BM_TrainStepMini(benchmark::State& state) { TrainStep(state, Gpt2Preset("mini"), 8); }
BENCHMARK(BM_TrainStepNano)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(BM_TrainStepMini)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace lockstep::models
