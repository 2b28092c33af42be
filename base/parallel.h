// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Loops over index ranges on several threads: the only place that knows the thread runtime.
//
//   ParallelFor(threads, x.size(), /*chunk=*/16384, [&](int64_t begin, int64_t end) {
//     for (int64_t i = begin; i < end; ++i) y[i] = 2 * x[i];
//   });
//
//   double sum = ParallelReduce(
//       threads, x.size(), 16384, 0.0,
//       [&](int64_t begin, int64_t end) { return SumOf(x.data() + begin, end - begin); },
//       [](double a, double b) { return a + b; });
//
// Results never depend on the number of threads: [0, count) is cut into chunks of `chunk` elements
// (the last one may be shorter), the borders depend on `count` and `chunk` only, and ParallelReduce
// combines the chunks' results in chunk order.
//
// The runtime is OpenMP, because oneDNN uses it too: both then share one pool of threads per
// calling thread instead of running two pools against each other. A process that has run a parallel
// region must not be continued with a plain fork: the child hangs in the runtime at its first
// region. Start processes with fork and exec.

#ifndef LOCKSTEP_BASE_PARALLEL_H_
#define LOCKSTEP_BASE_PARALLEL_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace lockstep {

// Number of processors that the calling thread may run on (its scheduler affinity), at least 1.
// Ranks that share a host divide this number among themselves.
int HardwareThreads();

// True inside a body that ParallelFor runs on more than one thread.
bool InParallelRegion();

// Scope: libraries that use the same runtime by themselves (oneDNN) get `thread_count` threads (at
// least 1) when this thread calls them. ParallelFor takes its own count and is not affected.
class RuntimeThreadsScope {
 public:
  explicit RuntimeThreadsScope(int thread_count);
  ~RuntimeThreadsScope();
  RuntimeThreadsScope(const RuntimeThreadsScope&) = delete;
  RuntimeThreadsScope& operator=(const RuntimeThreadsScope&) = delete;

 private:
  int saved_;
};

// Number of chunks that [0, count) is cut into: count / chunk, rounded up; 0 for an empty range.
// Throws InvalidArgument for a negative count or a chunk below 1.
int64_t ChunkCount(int64_t count, int64_t chunk);

// Calls body(begin, end) once for each chunk of [0, count), on up to thread_count threads, the
// calling thread included, and returns when all chunks are done. Which thread runs which chunk is
// not fixed: a thread starts with its own share of neighbouring chunks and then takes over what
// others have not started. Everything runs in order on the calling thread if thread_count is 1 or
// less, if there is one chunk only, or if the caller is itself a body of a parallel region.
//
// `body` is called concurrently with itself and must only write what belongs to its range. The
// worker threads do not inherit the caller's thread state.
//
// A fork and join costs about 5 us: choose `chunk` so that a chunk takes longer than that.
//
// If bodies throw, the exception of the first throwing chunk in chunk order is rethrown here, the
// same one at every thread count; chunks after it may or may not have run. Throws InvalidArgument
// for a negative count or a chunk below 1.
void ParallelFor(int thread_count, int64_t count, int64_t chunk,
                 absl::FunctionRef<void(int64_t begin, int64_t end)> body);

// Returns combine(...combine(combine(identity, map(chunk 0)), map(chunk 1))..., map(last chunk)),
// where the calls of map(begin, end) -> T are made as ParallelFor makes them and those of
// combine(T, T) -> T on the calling thread. Returns `identity` for an empty range. Throws as
// ParallelFor does.
template <typename T, typename Map, typename Combine>
T ParallelReduce(int thread_count, int64_t count, int64_t chunk, T identity, Map&& map,
                 Combine&& combine) {
  // Wrapped, because vector<bool> packs neighbours into one byte that two threads would write.
  struct Partial {
    T value;
  };
  std::vector<Partial> partials(static_cast<size_t>(ChunkCount(count, chunk)), Partial{identity});
  ParallelFor(thread_count, count, chunk, [&](int64_t begin, int64_t end) {
    partials[static_cast<size_t>(begin / chunk)].value = map(begin, end);
  });
  T result = std::move(identity);
  for (Partial& partial : partials) result = combine(std::move(result), std::move(partial.value));
  return result;
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_PARALLEL_H_
