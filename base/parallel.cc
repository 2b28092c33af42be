// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/base/parallel.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Body = absl::FunctionRef<void(int64_t, int64_t)>;

// The exception of the lowest chunk that threw. A chunk is skipped only when a lower one has
// failed, so the lowest failing chunk always runs and the outcome does not depend on timing.
class FirstFailure {
 public:
  bool SkipsChunk(int64_t chunk_index) const {
    return chunk_index > lowest_.load(std::memory_order_relaxed);
  }

  void Record(int64_t chunk_index, std::exception_ptr exception) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (chunk_index >= lowest_.load(std::memory_order_relaxed)) return;
    lowest_.store(chunk_index, std::memory_order_relaxed);
    exception_ = std::move(exception);
  }

  void RethrowIfAny() {
    // The lock orders this read after every Record() for tools that do not see the join.
    std::lock_guard<std::mutex> lock(mutex_);
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::atomic<int64_t> lowest_ = std::numeric_limits<int64_t>::max();
  std::mutex mutex_;
  std::exception_ptr exception_;
};

// One thread's share of neighbouring chunks: keeps a thread on the same data from one loop to the
// next, while others may still take chunks from it when they run out. On its own cache line.
struct alignas(64) Share {
  std::atomic<int64_t> next = 0;
  int64_t end = 0;
};

void RunChunk(int64_t index, int64_t count, int64_t chunk, Body body) {
  const int64_t begin = index * chunk;
  // Not min(begin + chunk, count), whose sum overflows near the end of int64.
  body(begin, begin + std::min(chunk, count - begin));
}

void RunShare(Share& share, int64_t count, int64_t chunk, Body body, FirstFailure& failure) {
  while (true) {
    const int64_t index = share.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= share.end) return;
    if (failure.SkipsChunk(index)) continue;
    try {
      RunChunk(index, count, chunk, body);
    } catch (...) {
      failure.Record(index, std::current_exception());
    }
  }
}

}  // namespace

int HardwareThreads() {
  // A kernel with more processors than the set holds refuses the call: try larger sets.
  for (int processors = CPU_SETSIZE; processors <= 64 * CPU_SETSIZE; processors *= 2) {
    cpu_set_t* set = CPU_ALLOC(processors);
    if (set == nullptr) break;
    const size_t set_bytes = CPU_ALLOC_SIZE(processors);
    const bool known = sched_getaffinity(0, set_bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(set_bytes, set) : 0;
    CPU_FREE(set);
    if (known) return std::max(count, 1);
  }
  return 1;
}

bool InParallelRegion() { return omp_in_parallel() != 0; }

RuntimeThreadsScope::RuntimeThreadsScope(int thread_count) : saved_(omp_get_max_threads()) {
  omp_set_num_threads(std::max(thread_count, 1));
}

RuntimeThreadsScope::~RuntimeThreadsScope() { omp_set_num_threads(saved_); }

int64_t ChunkCount(int64_t count, int64_t chunk) {
  if (count < 0 || chunk < 1) {
    throw InvalidArgumentError(absl::StrFormat(
        "ParallelFor: count %d and chunk %d: count must be 0 or more and chunk 1 or more", count,
        chunk));
  }
  return count / chunk + (count % chunk != 0 ? 1 : 0);
}

void ParallelFor(int thread_count, int64_t count, int64_t chunk, Body body) {
  const int64_t chunks = ChunkCount(count, chunk);
  const int threads = static_cast<int>(std::min<int64_t>(thread_count, chunks));
  if (threads <= 1 || InParallelRegion()) {
    for (int64_t index = 0; index < chunks; ++index) RunChunk(index, count, chunk, body);
    return;
  }
  std::vector<Share> shares(static_cast<size_t>(threads));
  for (int t = 0; t < threads; ++t) {
    shares[t].next = chunks / threads * t + std::min<int64_t>(t, chunks % threads);
    shares[t].end = chunks / threads * (t + 1) + std::min<int64_t>(t + 1, chunks % threads);
  }
  FirstFailure failure;
  // The runtime may give fewer threads than asked for; the shares of the missing ones are taken
  // over like any other.
#pragma omp parallel num_threads(threads)
  {
    const int self = omp_get_thread_num();
    for (int i = 0; i < threads; ++i) {
      RunShare(shares[(self + i) % threads], count, chunk, body, failure);
    }
  }
  failure.RethrowIfAny();
}

}  // namespace lockstep
