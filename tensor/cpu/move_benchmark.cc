// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Moves between devices against memcpy, in the same run: of_memcpy is the share of its speed. What
// memcpy writes to is there; a move makes its result, and that is part of its time.
//
// Arguments: bytes, threads. memcpy runs on as many threads, in pieces of the kernel's size.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/functional/function_ref.h"
#include "benchmark/benchmark.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/parallel.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

constexpr int64_t kPiece = 64 << 10;  // 16384 elements

double Seconds(int64_t calls, absl::FunctionRef<void()> run) {
  const Stopwatch watch;
  for (int64_t i = 0; i < calls; ++i) run();
  return watch.ElapsedSeconds();
}

void BM_Move(benchmark::State& state) {
  const int64_t bytes = state.range(0);
  const int threads = static_cast<int>(state.range(1));
  SetIntraOpThreads(threads);
  const Tensor x = Full({bytes / 4}, 1.0);
  const Tensor y = Full({bytes / 4}, 1.0, {.device = Cpu(1)});
  const char* const from = static_cast<const char*>(RawData(x));
  char* const to = static_cast<char*>(MutableRawData(y));
  // Short calls by the hundred: a clock takes as long as a few of them.
  const int64_t calls = std::clamp<int64_t>((4 << 20) / bytes, 1, 256);
  double moves = 0, copies = 0;
  for (auto _ : state) {
    copies += Seconds(calls, [&] {
      ParallelFor(threads, bytes, kPiece, [&](int64_t begin, int64_t end) {
        std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
      });
      benchmark::ClobberMemory();
    });
    const double seconds = Seconds(calls, [&] { benchmark::DoNotOptimize(To(x, Cpu(1))); });
    moves += seconds;
    state.SetIterationTime(seconds);
  }
  const double count = static_cast<double>(state.iterations() * calls);
  state.counters["us"] = moves / count * 1e6;
  state.counters["GB_per_s"] = count * static_cast<double>(bytes) / moves * 1e-9;
  state.counters["memcpy_us"] = copies / count * 1e6;
  state.counters["of_memcpy"] = copies / moves;
  SetIntraOpThreads(0);
}
BENCHMARK(BM_Move)
    ->ArgsProduct({benchmark::CreateRange(1 << 10, 64 << 20, 16), {1, 2}})
    ->UseManualTime();

}  // namespace
}  // namespace lockstep
