// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ops over 5e7 elements beside a plain vector loop with the same reads and writes, in turn in one
// run, on all processors. `of_plain` is the loop's time by the op's: 1 is as fast, and memory-bound
// ops are meant to reach 0.85.
//
// Transcendental functions have two limits: the loop that only moves their bytes (`of_memory`), and
// their own speed on 2^14 elements a processor, which stay in its cache (`of_compute`). The larger
// of the two says which of them binds.
//
//   bazel run //tensor/cpu:bandwidth_benchmark
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/functional/function_ref.h"
#include "benchmark/benchmark.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/parallel.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

constexpr int64_t kLarge = 50'000'000;
constexpr int64_t kCached = 1 << 14;
constexpr int64_t kChunk = 1 << 14;

// Eight numbers that the compiler keeps in vector registers, whatever the instruction set.
constexpr int64_t kLanes = 8;
typedef float Floats __attribute__((vector_size(32)));
typedef uint32_t Words __attribute__((vector_size(32)));
typedef uint16_t Halves __attribute__((vector_size(16)));

template <typename V, typename T>
V Load(const T* from) {
  V value;
  std::memcpy(&value, from, sizeof(V));
  return value;
}
template <typename V, typename T>
void Store(const V& value, T* to) {
  std::memcpy(to, &value, sizeof(V));
}

// body(begin, end) over whole vectors; the few elements after them are left out.
void PlainLoop(int64_t count, absl::FunctionRef<void(int64_t, int64_t)> body) {
  ParallelFor(IntraOpThreads(), count / kLanes * kLanes, kChunk, body);
}

// x = f(x, y)
template <typename F>
void PlainBinary(float* x, const float* y, int64_t count, F f) {
  PlainLoop(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kLanes) {
      Store(f(Load<Floats>(x + i), Load<Floats>(y + i)), x + i);
    }
  });
}

// x = f(x)
template <typename F>
void PlainUnary(float* x, int64_t count, F f) {
  PlainLoop(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kLanes) Store(f(Load<Floats>(x + i)), x + i);
  });
}

// To bfloat16, to nearest, for numbers that are not NaN.
void PlainCast(const float* x, uint16_t* y, int64_t count) {
  PlainLoop(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kLanes) {
      const Words bits = Load<Words>(x + i);
      const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
      Store(__builtin_convertvector(rounded, Halves), y + i);
    }
  });
}

// All elements by f, four chains in each chunk.
template <typename F>
float PlainReduce(const float* x, int64_t count, F f) {
  std::vector<float> partial(static_cast<size_t>(count / kChunk + 1));
  PlainLoop(count, [&](int64_t begin, int64_t end) {
    Floats chains[4];
    for (Floats& chain : chains) chain = Load<Floats>(x + begin);
    int64_t i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      for (int64_t c = 0; c < 4; ++c) {
        chains[c] = f(chains[c], Load<Floats>(x + i + c * kLanes));
      }
    }
    const Floats all = f(f(chains[0], chains[1]), f(chains[2], chains[3]));
    float result = all[0];
    for (int64_t lane = 1; lane < kLanes; ++lane) result += all[lane];
    partial[static_cast<size_t>(begin / kChunk)] = result;
  });
  float total = 0;
  for (float value : partial) total += value;
  return total;
}

double Seconds(absl::FunctionRef<void()> run) {
  const Stopwatch watch;
  run();
  return watch.ElapsedSeconds();
}

// The op's time is the iteration's. `bytes` are read and written by one call of either.
void Compare(benchmark::State& state, int64_t bytes, absl::FunctionRef<void()> op,
             absl::FunctionRef<void()> plain) {
  double op_seconds = 0, plain_seconds = 0;
  for (auto _ : state) {
    plain_seconds += Seconds(plain);
    const double seconds = Seconds(op);
    op_seconds += seconds;
    state.SetIterationTime(seconds);
  }
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["of_plain"] = plain_seconds / op_seconds;
}

struct Operands {
  explicit Operands(int64_t count = kLarge)
      : x(RandomUniform({count}, 0.1, 1)), y(RandomUniform({count}, 0.1, 1)) {}
  float* x_data() const { return MutableData<float>(x); }
  const float* y_data() const { return Data<float>(y); }
  Tensor x, y;
};

void BM_Add(benchmark::State& state) {
  const Operands o;
  Compare(
      state, 12 * kLarge, [&] { AddInPlace(o.x, o.y); },
      [&] { PlainBinary(o.x_data(), o.y_data(), kLarge, [](auto a, auto b) { return a + b; }); });
}
void BM_Mul(benchmark::State& state) {
  const Operands o;
  Compare(
      state, 12 * kLarge, [&] { MulInPlace(o.x, o.y); },
      [&] { PlainBinary(o.x_data(), o.y_data(), kLarge, [](auto a, auto b) { return a * b; }); });
}
void BM_Relu(benchmark::State& state) {
  const Operands o;
  Compare(
      state, 8 * kLarge, [&] { ReluInPlace(o.x); },
      [&] { PlainUnary(o.x_data(), kLarge, [](auto a) { return a > 0 ? a : Floats{}; }); });
}
void BM_CastToBFloat16(benchmark::State& state) {
  const Operands o;
  const Tensor y = To(o.x, DType::kBFloat16);
  auto* to = static_cast<uint16_t*>(MutableRawData(y));
  Compare(
      state, 6 * kLarge, [&] { CopyInto(y, o.x); },
      [&] { PlainCast(Data<float>(o.x), to, kLarge); });
}
void BM_Sum(benchmark::State& state) {
  const Operands o;
  Compare(
      state, 4 * kLarge, [&] { benchmark::DoNotOptimize(Sum(o.x)); },
      [&] {
        benchmark::DoNotOptimize(
            PlainReduce(o.y_data(), kLarge, [](auto a, auto b) { return a + b; }));
      });
}
void BM_Max(benchmark::State& state) {
  const Operands o;
  Compare(
      state, 4 * kLarge, [&] { benchmark::DoNotOptimize(Max(o.x)); },
      [&] {
        // The sum's loop has the same reads; SSE2 has no short way to a maximum that keeps NaN.
        benchmark::DoNotOptimize(
            PlainReduce(o.y_data(), kLarge, [](auto a, auto b) { return a + b; }));
      });
}
BENCHMARK(BM_Add)->UseManualTime();
BENCHMARK(BM_Mul)->UseManualTime();
BENCHMARK(BM_Relu)->UseManualTime();
BENCHMARK(BM_CastToBFloat16)->UseManualTime();
BENCHMARK(BM_Sum)->UseManualTime();
BENCHMARK(BM_Max)->UseManualTime();

// A new tensor each time, in a block that the allocator has kept: in place the numbers would run
// away.
void Transcendental(benchmark::State& state, absl::FunctionRef<Tensor(const Tensor&)> op) {
  const Operands large;
  const Operands cached(kCached * IntraOpThreads());
  const int64_t repeats = kLarge / cached.x.numel();
  double op_seconds = 0, memory_seconds = 0, compute_seconds = 0;
  for (auto _ : state) {
    memory_seconds += Seconds([&] {
      PlainBinary(large.x_data(), large.y_data(), kLarge, [](auto, auto b) { return b; });
    });
    compute_seconds += Seconds([&] {
      for (int64_t i = 0; i < repeats; ++i) op(cached.y);
    });
    const double seconds = Seconds([&] { op(large.y); });
    op_seconds += seconds;
    state.SetIterationTime(seconds);
  }
  state.SetBytesProcessed(state.iterations() * 8 * kLarge);
  state.counters["of_memory"] = memory_seconds / op_seconds;
  state.counters["of_compute"] = compute_seconds / op_seconds;
}

void BM_Exp(benchmark::State& state) {
  Transcendental(state, [](const Tensor& x) { return Exp(x); });
}
void BM_Log(benchmark::State& state) {
  Transcendental(state, [](const Tensor& x) { return Log(x); });
}
void BM_Tanh(benchmark::State& state) {
  Transcendental(state, [](const Tensor& x) { return Tanh(x); });
}
void BM_Sigmoid(benchmark::State& state) {
  Transcendental(state, [](const Tensor& x) { return Sigmoid(x); });
}
void BM_GeluTanh(benchmark::State& state) {
  Transcendental(state, [](const Tensor& x) { return Gelu(x, GeluKind::kTanh); });
}
void BM_GeluErf(benchmark::State& state) {
  Transcendental(state, [](const Tensor& x) { return Gelu(x); });
}
BENCHMARK(BM_Log)->UseManualTime();
BENCHMARK(BM_Exp)->UseManualTime();
BENCHMARK(BM_Tanh)->UseManualTime();
BENCHMARK(BM_Sigmoid)->UseManualTime();
BENCHMARK(BM_GeluTanh)->UseManualTime();
BENCHMARK(BM_GeluErf)->UseManualTime();

}  // namespace
}  // namespace lockstep
