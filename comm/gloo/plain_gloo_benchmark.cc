// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// AllReduce of float32 sums, against Gloo's own (its ring) over the same kind of connections, in
// one run, turn about:
//
//   (no flag)          ranks of this machine over loopback, one or two playing a host, and shared
//                      memory, with what bounds it (comm/memory_bandwidth.h)
//   --network=veth     two hosts that are network namespaces, joined by veth links and a bridge,
//                      with one rank or two on each
//   --ranks=2          two ranks only (or 4), instead of both
//   --sizes=1024,8     sizes in KiB
//   --rounds=9         how often each contestant has its turn
//
//   bus bandwidth = 2 (W - 1) / W * bytes / time
//
// A ratio above 1 says that this library is faster than plain Gloo: the median of the rounds'
// ratios, since what else the machine does changes from one moment to the next.

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "gloo/allreduce.h"
#include "gloo/math.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/median.h"
#include "lockstep/comm/child_process.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/gloo/exchange.h"
#include "lockstep/comm/memory_bandwidth.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/test_hosts.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm {
namespace {

constexpr int kHosts = 2;
constexpr int kStorePort = 29400;

struct Flags {
  bool veth = false;
  std::vector<int> ranks = {2, 4};
  std::vector<int64_t> sizes_kib = {1, 1024, 8192, 65536};
  int rounds = 9;
  // Of a rank that a process of this program has started on a host.
  int rank = -1;
  std::string address;
  std::string text;  // all of them
};

Flags ParseFlags(const std::vector<std::string>& words) {
  Flags flags;
  for (const std::string& word : words) {
    absl::string_view value = word;
    bool right = true;
    if (value == "--network=veth") {
      flags.veth = true;
    } else if (absl::ConsumePrefix(&value, "--ranks=")) {
      flags.ranks.assign(1, 0);
      right = absl::SimpleAtoi(value, &flags.ranks[0]) && flags.ranks[0] % kHosts == 0;
    } else if (absl::ConsumePrefix(&value, "--sizes=")) {
      flags.sizes_kib.clear();
      for (const absl::string_view size : absl::StrSplit(value, ',')) {
        flags.sizes_kib.push_back(0);
        right = right && absl::SimpleAtoi(size, &flags.sizes_kib.back());
      }
    } else if (absl::ConsumePrefix(&value, "--rounds=")) {
      right = absl::SimpleAtoi(value, &flags.rounds) && flags.rounds > 0;
    } else if (absl::ConsumePrefix(&value, "--rank=")) {
      right = absl::SimpleAtoi(value, &flags.rank);
    } else if (absl::ConsumePrefix(&value, "--address=")) {
      flags.address = std::string(value);
    } else {
      right = false;
    }
    if (!right) {
      throw InvalidArgumentError(
          absl::StrCat(word,
                       ": the flags are --network=veth, --ranks=2 (or another even number), "
                       "--sizes=1024,8 (KiB) and --rounds=9"));
    }
    absl::StrAppend(&flags.text, flags.text.empty() ? "" : " ", word);
  }
  return flags;
}

// A rank, wherever it runs.
struct Rank {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;
  std::string address;
  bool veth = false;
};

std::shared_ptr<Communicator> Make(const Rank& rank, const std::string& name,
                                   const std::string& backend, int ranks_a_host) {
  ProcessGroupOptions options;
  options.rank = rank.rank;
  options.world_size = rank.size;
  options.store = rank.store;
  options.group_name = name;
  options.backend = backend;
  if (ranks_a_host == 1) options.host_grouping = HostGrouping::kFlat;
  if (backend == "gloo") options.bind_address = rank.address;
  if (backend == "gloo" && !rank.veth) {
    options.host_id = absl::StrCat("host ", rank.rank / ranks_a_host);
  }
  return InitProcessGroup(options);
}

Tensor Zeros(const Tensor& tensor) {
  float* const data = MutableData<float>(tensor);
  std::fill(data, data + tensor.numel(), 0.0f);
  return tensor;
}

Tensor Allocated(Communicator& comm, int64_t bytes) {
  return Zeros(FromStorage(comm.Allocate(bytes), ShapeSpan({bytes / 4}), DType::kFloat32));
}

struct Contestant {
  std::string name;
  std::function<void()> call;
  std::vector<double> seconds = {};  // a call, by round
};

void RunRounds(Communicator& ranks, int64_t bytes, int rounds, std::vector<Contestant>* all) {
  const int repeats = bytes >= (32 << 20) ? 1 : bytes >= (1 << 20) ? 40 : 200;
  for (int round = -1; round < rounds; ++round) {  // the first warms up
    for (Contestant& contestant : *all) {
      ranks.Barrier().Wait();
      const Stopwatch watch;
      for (int i = 0; i < repeats; ++i) contestant.call();
      if (round >= 0) contestant.seconds.push_back(watch.ElapsedSeconds() / repeats);
    }
  }
}

// The first contestant is what the others are compared with.
void Report(const Rank& rank, int64_t bytes, const std::vector<Contestant>& all) {
  if (rank.rank != 0) return;
  for (const Contestant& contestant : all) {
    std::vector<double> ratios;
    for (size_t round = 0; round < contestant.seconds.size(); ++round) {
      ratios.push_back(all[0].seconds[round] / contestant.seconds[round]);
    }
    const double seconds = Median(contestant.seconds);
    const double bus =
        2.0 * (rank.size - 1) / rank.size * static_cast<double>(bytes) / seconds * 1e-9;
    std::printf("%s, %d ranks %8lld KiB  %-28s %10.1f us  bus %7.3f GB/s  %6.2f x plain Gloo\n",
                rank.veth ? "veth" : "loopback", rank.size, static_cast<long long>(bytes >> 10),
                contestant.name.c_str(), seconds * 1e6, bus, Median(ratios));
  }
  std::fflush(stdout);
}

void MeasureRank(const Rank& rank, const Flags& flags) {
  const gloo::GlooConnections plain =
      gloo::ConnectGloo(*rank.store, absl::StrCat("plain/", rank.size), rank.address, rank.rank,
                        rank.size, Deadline::After(absl::Seconds(60)));
  const auto flat = Make(rank, "flat", "gloo", 1);
  const auto paired = rank.size > 2 ? Make(rank, "paired", "gloo", rank.size / kHosts) : nullptr;
  const auto shm = rank.veth ? nullptr : Make(rank, "shm", "shm", 0);
  for (const int64_t kib : flags.sizes_kib) {
    const int64_t bytes = kib << 10;
    const Tensor ordinary = Zeros(Empty({bytes / 4}));
    const Tensor for_paired = paired ? Allocated(*paired, bytes) : Tensor();
    const Tensor for_shm = shm ? Allocated(*shm, bytes) : Tensor();
    ::gloo::AllreduceOptions options(plain.context);
    options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(MutableData<float>(ordinary), static_cast<size_t>(bytes / 4));
    options.setReduceFunction(
        [](void* c, const void* a, const void* b, size_t n) { ::gloo::sum<float>(c, a, b, n); });
    std::vector<Contestant> all = {{"plain Gloo", [&] { ::gloo::allreduce(options); }}};
    const auto add = [&](const char* name, Communicator& comm, const Tensor& tensor) {
      all.push_back({name, [&comm, tensor] { comm.AllReduce(tensor).Wait(); }});
    };
    add(rank.size > 2 ? "gloo, flat" : "gloo, one rank a host", *flat, ordinary);
    if (paired) add("gloo, two hosts", *paired, for_paired);
    if (shm) add("shm, allocated memory", *shm, for_shm);
    if (shm) add("shm, ordinary memory", *shm, ordinary);
    RunRounds(*flat, bytes, flags.rounds, &all);
    Report(rank, bytes, all);
  }
}

// ---- Over loopback ----

void MeasureSpawned(RankContext& context) {
  MeasureRank({context.rank, context.world_size, context.store, "127.0.0.1"},
              ParseFlags(absl::StrSplit(context.argument, ' ', absl::SkipEmpty())));
}

// ---- Over veth ----

void MeasureOnHost(const Flags& flags) {
  ProcessGroupOptions options;
  options.rank = flags.rank;
  options.world_size = flags.ranks[0];
  options.master_port = kStorePort;
  const std::vector<std::string> addresses = absl::StrSplit(flags.address, ',');
  options.master_address = addresses[0];
  const auto host = static_cast<size_t>(flags.rank * kHosts / options.world_size);
  MeasureRank({options.rank, options.world_size, OpenStore(options), addresses[host], true}, flags);
}

void RunHosts(int ranks, const Flags& flags) {
  const Hosts hosts(kHosts);
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self));
  const std::string program(self, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  std::vector<ChildProcess> children;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> command = {program};
    for (const absl::string_view word : absl::StrSplit(flags.text, ' ')) command.emplace_back(word);
    command.push_back(absl::StrCat("--ranks=", ranks));
    command.push_back(absl::StrCat("--rank=", rank));
    command.push_back(absl::StrCat("--address=", hosts.Address(0), ",", hosts.Address(1)));
    std::vector<std::string> arguments = hosts.Run(rank * kHosts / ranks, command);
    arguments.insert(arguments.begin(), "sh");
    children.push_back(
        StartChild("plain_gloo_benchmark", {.program = "/bin/sh", .arguments = arguments}));
  }
  for (ChildProcess& child : children) {
    WaitReadable(child.pidfd(), Deadline());
    if (child.Reap().value_or(-1) != 0) throw InternalError("a rank has failed");
  }
}

}  // namespace

void RunAll(const Flags& flags) {
  if (flags.rank >= 0) return MeasureOnHost(flags);
  if (!flags.veth) PrintMemoryBandwidth(MeasureMemoryBandwidth());
  for (const int ranks : flags.ranks) {
    if (flags.veth) {
      RunHosts(ranks, flags);
    } else {
      Spawn(ranks, MeasureSpawned, {.argument = flags.text}).ThrowIfFailed();
    }
  }
}

}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  try {
    lockstep::comm::RunAll(lockstep::comm::ParseFlags({argv + 1, argv + argc}));
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
