// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/memory_bandwidth.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/median.h"
#include "lockstep/base/parallel.h"
#include "lockstep/comm/reduce.h"
#include "lockstep/comm/signature.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::comm {
namespace {

constexpr int64_t kBytes = 64 << 20;

template <typename Function>
double BytesPerSecond(int64_t passes, const Function& run) {
  run();
  std::vector<double> seconds;
  for (int i = 0; i < 7; ++i) {
    const Stopwatch watch;
    run();
    seconds.push_back(watch.ElapsedSeconds());
  }
  return static_cast<double>(passes * kBytes) / Median(seconds);
}

}  // namespace

MemoryBandwidth MeasureMemoryBandwidth() {
  MemoryBandwidth result;
  result.threads = HardwareThreads();
  const auto threads = static_cast<size_t>(result.threads);
  std::vector<double> copy(threads), sum(threads);
  std::vector<std::thread> workers;
  for (size_t t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      std::vector<float> x(kBytes / 4, 1), y(kBytes / 4, 2), z(kBytes / 4, 3);
      copy[t] = BytesPerSecond(2, [&] { std::memcpy(z.data(), x.data(), kBytes); });
      const void* sources[] = {x.data(), y.data()};
      sum[t] = BytesPerSecond(3, [&] {
        ReduceElements(ReduceOp::kSum, DType::kFloat32, sources, kBytes / 4, z.data());
      });
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (size_t t = 0; t < threads; ++t) {
    result.copy += copy[t];
    result.sum += sum[t];
  }
  return result;
}

void PrintMemoryBandwidth(const MemoryBandwidth& bandwidth) {
  std::printf("memcpy on %d processors: %.1f GB/s; z = x + y: B = %.1f GB/s, B/4 = %.1f GB/s\n",
              bandwidth.threads, bandwidth.copy * 1e-9, bandwidth.sum * 1e-9,
              bandwidth.sum * 0.25e-9);
  std::fflush(stdout);
}

}  // namespace lockstep::comm
