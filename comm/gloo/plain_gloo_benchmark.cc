// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// AllReduce of float32 sums, against Gloo's own (its ring) over the same kind of connections, in
// one run: one rank a host, two ranks a host (what would be hosts are processes here, and the
// network is loopback), and shared memory.
//
//   bus bandwidth = 2 (W - 1) / W * bytes / time
//
// A ratio above 1 says that this library is faster than plain Gloo.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gloo/allreduce.h"
#include "gloo/math.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/gloo/exchange.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm {
namespace {

constexpr int64_t kSizes[] = {1 << 10, 1 << 20, 64 << 20};

std::shared_ptr<Communicator> Make(const RankContext& context, const std::string& name,
                                   const std::string& backend, int ranks_a_host) {
  ProcessGroupOptions options = context.group_options(name);
  options.backend = backend;
  if (ranks_a_host > 0) options.host_id = absl::StrCat("host ", context.rank / ranks_a_host);
  return InitProcessGroup(options);
}

void Fill(const Tensor& tensor) {
  float* const data = MutableData<float>(tensor);
  std::fill(data, data + tensor.numel(), 0.0f);
}

// Seconds a call: the median of batches, as one late wake-up must not decide.
double Measure(Communicator& ranks, int64_t bytes, const std::function<void()>& call) {
  const int repeats = bytes >= (8 << 20) ? 3 : bytes >= (128 << 10) ? 30 : 200;
  for (int i = 0; i < repeats / 10 + 1; ++i) call();
  std::vector<double> seconds;
  for (int batch = 0; batch < 5; ++batch) {
    ranks.Barrier().Wait();
    const Stopwatch watch;
    for (int i = 0; i < repeats; ++i) call();
    seconds.push_back(watch.ElapsedSeconds() / repeats);
  }
  std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
  return seconds[2];
}

void MeasureRank(RankContext& context) {
  const int size = context.world_size;
  const gloo::GlooConnections plain = gloo::ConnectGloo(
      *context.store, "plain", "127.0.0.1", context.rank, size, Deadline::After(absl::Seconds(60)));
  const auto flat = Make(context, "flat", "gloo", 1);
  const auto paired = Make(context, "paired", "gloo", 2);
  const auto shm = Make(context, "shm", "shm", 0);
  for (const int64_t bytes : kSizes) {
    const int64_t count = bytes / 4;
    const Tensor ordinary = Empty({count});
    const Tensor allocated = FromStorage(shm->Allocate(bytes), ShapeSpan({count}), DType::kFloat32);
    const Tensor for_paired =
        FromStorage(paired->Allocate(bytes), ShapeSpan({count}), DType::kFloat32);
    for (const Tensor& tensor : {ordinary, allocated, for_paired}) Fill(tensor);
    ::gloo::AllreduceOptions options(plain.context);
    options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(MutableData<float>(ordinary), static_cast<size_t>(count));
    options.setReduceFunction(
        [](void* c, const void* a, const void* b, size_t n) { ::gloo::sum<float>(c, a, b, n); });
    const double base = Measure(*shm, bytes, [&] { ::gloo::allreduce(options); });
    const auto report = [&](const char* what, double seconds) {
      if (context.rank != 0) return;
      const double bus = 2.0 * (size - 1) / size * static_cast<double>(bytes) / seconds * 1e-9;
      std::printf("%d ranks %8lld KiB  %-28s %10.1f us  bus %7.3f GB/s  %6.2f x plain Gloo\n", size,
                  static_cast<long long>(bytes >> 10), what, seconds * 1e6, bus, base / seconds);
      std::fflush(stdout);
    };
    report("plain Gloo", base);
    const auto run = [&](const char* what, Communicator& comm, const Tensor& tensor) {
      report(what, Measure(*shm, bytes, [&] { comm.AllReduce(tensor).Wait(); }));
    };
    run("gloo, one rank a host", *flat, ordinary);
    if (size > 2) run("gloo, two ranks a host", *paired, for_paired);
    run("shm, allocated memory", *shm, allocated);
    run("shm, ordinary memory", *shm, ordinary);
  }
}

}  // namespace

void RunAll() {
  for (const int ranks : {2, 4}) Spawn(ranks, MeasureRank).ThrowIfFailed();
}

}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  try {
    lockstep::comm::RunAll();
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
