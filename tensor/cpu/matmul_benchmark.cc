// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GFLOP/s of RunMatMul on one thread: the linear layers of two small GPTs, forward (NT), gradient
// of the input (NN) and of the weight (TN), beside dnnl::sgemm of the same product and oneDNN's
// matmul primitive at 2048^3. The counter is 2 * m * n * k / time.
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "benchmark/benchmark.h"
#include "lockstep/base/parallel.h"
#include "lockstep/tensor/cpu/matmul.h"
#include "lockstep/tensor/cpu/onednn_matmul.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/kernel.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace lockstep::cpu {
namespace {

enum Layout { kNN, kNT, kTN };

struct Operands {
  Operands(const benchmark::State& state)  // NOLINT
      : m(state.range(0)),
        n(state.range(1)),
        k(state.range(2)),
        layout(static_cast<Layout>(state.range(3))),
        a(m * k, 0.5f),
        b(k * n, 0.25f),
        c(m * n) {}
  int64_t m, n, k;
  Layout layout;
  std::vector<float> a, b, c;
};

void SetCounter(benchmark::State& state, const Operands& o) {
  state.counters["FLOP/s"] = benchmark::Counter(2.0 * static_cast<double>(o.m * o.n * o.k),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void BM_MatMul(benchmark::State& state) {
  Operands o(state);
  MatMulCall call;
  call.m = o.m;
  call.n = o.n;
  call.k = o.k;
  call.a.data = o.a.data();
  call.a.row_stride = o.layout == kTN ? 1 : o.k;
  call.a.col_stride = o.layout == kTN ? o.m : 1;
  call.b.data = o.b.data();
  call.b.row_stride = o.layout == kNT ? 1 : o.n;
  call.b.col_stride = o.layout == kNT ? o.k : 1;
  call.c = o.c.data();
  for (auto _ : state) {
    KernelContext context(Cpu(0), 0, 1);
    RunMatMul(context, call);
  }
  SetCounter(state, o);
}

void BM_DnnlSgemm(benchmark::State& state) {
  Operands o(state);
  const RuntimeThreadsScope scope(1);
  for (auto _ : state) {
    dnnl::sgemm(o.layout == kTN ? 'T' : 'N', o.layout == kNT ? 'T' : 'N', o.m, o.n, o.k, 1.0f,
                o.a.data(), o.layout == kTN ? o.m : o.k, o.b.data(), o.layout == kNT ? o.k : o.n,
                0.0f, o.c.data(), o.n);
  }
  SetCounter(state, o);
}

void BM_DnnlPrimitive(benchmark::State& state) {
  Operands o(state);
  OneDnnMatMul problem;
  problem.m = o.m;
  problem.n = o.n;
  problem.k = o.k;
  problem.a = {o.layout == kTN, o.layout == kTN ? o.m : o.k};
  problem.b = {o.layout == kNT, o.layout == kNT ? o.k : o.n};
  problem.c_row_stride = o.n;
  for (auto _ : state) {
    KernelContext context(Cpu(0), 0, 1);
    RunOneDnnMatMul(context, problem, o.a.data(), o.b.data(), nullptr, o.c.data());
  }
  SetCounter(state, o);
}

// m, n, k, layout. Rows: 6 sequences of 64 tokens (nano, width 128), 8 of 256 (mini, width 384).
void Layers(benchmark::internal::Benchmark* benchmark) {
  const int64_t models[][2] = {{384, 128}, {2048, 384}};
  for (const auto& [rows, width] : models) {
    for (const int64_t out : {width, 3 * width, 4 * width}) {
      benchmark->Args({rows, out, width, kNT});  // y = x * W^T
      benchmark->Args({rows, width, out, kNN});  // dx = dy * W
      benchmark->Args({out, width, rows, kTN});  // dW = dy^T * x
    }
  }
  benchmark->Args({2048, 2048, 2048, kNN});
  benchmark->Args({64, 64, 32, kNT});
  benchmark->ArgNames({"m", "n", "k", "layout"});
}
BENCHMARK(BM_MatMul)->Apply(Layers);
BENCHMARK(BM_DnnlSgemm)->Apply(Layers);
BENCHMARK(BM_DnnlPrimitive)->Apply(Layers);

}  // namespace
}  // namespace lockstep::cpu
