// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Times collectives on the ranks of this machine: comm_bench_options.h, or --help.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/median.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tools/comm_bench_options.h"

namespace lockstep::comm_bench {
namespace {

using comm::Communicator;
using comm::Transfer;
using comm::Work;

// Element i of a rank's input: sums over 64 ranks are exact.
float InputAt(int rank, int64_t i) { return static_cast<float>((i * 3 + rank * 5 + i / 64) % 17); }

// One op on one size: its tensors, its call, and what must come out.
class Case {
 public:
  Case(Communicator& comm, const std::string& op, int64_t bytes, bool in_place, bool allocated)
      : comm_(comm), op_(op), ranks_(comm.size()), me_(comm.rank()) {
    // Whole parts for each rank where there are parts; at least one element in each.
    part_ = std::max<int64_t>(1, bytes / 4 / ranks_);
    const bool parts =
        op != "all_reduce" && op != "broadcast" && op != "reduce" && op != "send_recv";
    whole_ = parts ? part_ * ranks_ : std::max<int64_t>(1, bytes / 4);
    const bool gathers = op == "all_gather" || op == "gather";
    const bool scatters = op == "reduce_scatter" || op == "scatter";
    input_ = New(gathers && !in_place ? part_ : whole_, allocated);
    output_ = in_place ? input_ : New(scatters ? part_ : whole_, allocated);
    if (in_place && gathers) input_ = MyPart(output_);
    if (in_place && scatters) output_ = MyPart(input_);
  }

  static bool HasInPlace(const std::string& op) { return op != "all_to_all" && op != "send_recv"; }

  int64_t bytes() const { return whole_ * 4; }

  void Fill() {
    float* data = MutableData<float>(input_);
    for (int64_t i = 0; i < input_.numel(); ++i) data[i] = InputAt(me_, i);
  }

  Work Call() {
    const bool root = me_ == 0;
    if (op_ == "all_reduce") return comm_.AllReduce(input_, output_);
    if (op_ == "all_gather") return comm_.AllGather(input_, output_);
    if (op_ == "reduce_scatter") return comm_.ReduceScatter(input_, output_);
    if (op_ == "broadcast") return comm_.Broadcast(root ? input_ : output_);
    if (op_ == "reduce") return comm_.Reduce(input_, root ? output_ : Tensor());
    if (op_ == "gather") return comm_.Gather(input_, root ? output_ : Tensor());
    if (op_ == "scatter") return comm_.Scatter(root ? input_ : Tensor(), output_);
    if (op_ == "all_to_all") return comm_.AllToAll(input_, output_);
    return comm_.Batch({Transfer::Send(input_, (me_ + 1) % ranks_),
                        Transfer::Recv(output_, (me_ + ranks_ - 1) % ranks_)});
  }

  // Elements of the output that are wrong after Fill() and Call().
  int64_t Errors() const {
    const bool only_root = op_ == "reduce" || op_ == "gather";
    if ((only_root && me_ != 0) || (op_ == "broadcast" && me_ == 0)) return 0;
    const float* data = Data<float>(output_);
    int64_t errors = 0;
    for (int64_t i = 0; i < output_.numel(); ++i) errors += data[i] != Expected(i) ? 1 : 0;
    return errors;
  }

 private:
  Tensor New(int64_t count, bool allocated) {
    if (!allocated) return Empty({count});
    return FromStorage(comm_.Allocate(count * 4), ShapeSpan({count}), DType::kFloat32);
  }
  Tensor MyPart(const Tensor& whole) const {
    return FromStorage(whole.storage(), ShapeSpan({part_}), DType::kFloat32,
                       whole.offset() + part_ * me_);
  }
  float Sum(int64_t i) const {
    float sum = 0;
    for (int rank = 0; rank < ranks_; ++rank) sum += InputAt(rank, i);
    return sum;
  }
  float Expected(int64_t i) const {
    if (op_ == "all_reduce" || op_ == "reduce") return Sum(i);
    if (op_ == "reduce_scatter") return Sum(me_ * part_ + i);
    if (op_ == "broadcast") return InputAt(0, i);
    if (op_ == "scatter") return InputAt(0, me_ * part_ + i);
    if (op_ == "send_recv") return InputAt((me_ + ranks_ - 1) % ranks_, i);
    const int from = static_cast<int>(i / part_);
    if (op_ == "all_to_all") return InputAt(from, me_ * part_ + i % part_);
    return InputAt(from, i % part_);
  }

  Communicator& comm_;
  const std::string op_;
  const int ranks_;
  const int me_;
  int64_t part_ = 0;
  int64_t whole_ = 0;
  Tensor input_;
  Tensor output_;
};

struct Measurement {
  double seconds = 0;  // a call: the median of batches, as one late wake-up must not decide
  int64_t errors = 0;  // on all ranks
};

Measurement Measure(Communicator& comm, Case& c) {
  Measurement result;
  c.Fill();
  c.Call().Wait();
  const Tensor errors = FromVector<int64_t>({c.Errors()}, {1});
  comm.AllReduce(errors).Wait();
  result.errors = errors.Item<int64_t>({0});
  const int repeats = c.bytes() >= (8 << 20) ? 4 : c.bytes() >= (128 << 10) ? 40 : 300;
  for (int i = 0; i < repeats / 10 + 1; ++i) c.Call().Wait();
  std::vector<double> seconds;
  for (int batch = 0; batch < 5; ++batch) {
    comm.Barrier().Wait();
    const Stopwatch watch;
    for (int i = 0; i < repeats; ++i) c.Call().Wait();
    seconds.push_back(watch.ElapsedSeconds() / repeats);
  }
  result.seconds = Median(seconds);
  return result;
}

void Print(const Options& options, const std::string& backend, const std::string& op, int64_t bytes,
           bool in_place, const Measurement& m) {
  const double algorithm = static_cast<double>(bytes) / m.seconds * 1e-9;
  const double bus = algorithm * BusFactor(op, options.ranks);
  if (options.json) {
    std::printf(
        "{\"backend\": \"%s\", \"op\": \"%s\", \"ranks\": %d, \"size_bytes\": %lld, "
        "\"in_place\": %s, \"latency_us\": %.3f, \"algorithm_bandwidth_gbps\": %.4f, "
        "\"bus_bandwidth_gbps\": %.4f, \"errors\": %lld}\n",
        backend.c_str(), op.c_str(), options.ranks, static_cast<long long>(bytes),
        in_place ? "true" : "false", m.seconds * 1e6, algorithm, bus,
        static_cast<long long>(m.errors));
  } else {
    std::printf("%-8s %-15s %5d %12lld %9s %12.2f %10.3f %10.3f %7lld\n", backend.c_str(),
                op.c_str(), options.ranks, static_cast<long long>(bytes), in_place ? "yes" : "no",
                m.seconds * 1e6, algorithm, bus, static_cast<long long>(m.errors));
  }
  std::fflush(stdout);
}

void RankMain(comm::RankContext& context) {
  const Options options = ParseOptions(absl::StrSplit(context.argument, '\n', absl::SkipEmpty()));
  int64_t errors = 0;
  for (const std::string& backend : options.backends) {
    comm::ProcessGroupOptions group = context.group_options("bench_" + backend);
    group.backend = backend;
    // All ranks are on this machine: what is asked for is TCP, not the memory of one host again.
    if (backend == "gloo") group.host_grouping = comm::HostGrouping::kFlat;
    const std::shared_ptr<Communicator> comm = comm::InitProcessGroup(group);
    for (const std::string& op : options.ops) {
      for (const int64_t bytes : options.sizes) {
        for (const bool in_place : {false, true}) {
          if (in_place && !Case::HasInPlace(op)) continue;
          Case c(*comm, op, bytes, in_place, options.allocated);
          const Measurement m = Measure(*comm, c);
          errors += m.errors;
          if (context.rank == 0) Print(options, backend, op, c.bytes(), in_place, m);
        }
      }
    }
    comm->Barrier().Wait();
  }
  if (errors > 0) throw lockstep::DataLossError("wrong results: see the column of errors");
}

int Run(const std::vector<std::string>& arguments) {
  const Options options = ParseOptions(arguments);
  if (options.help) {
    std::printf("%s", HelpText().c_str());
    return 0;
  }
  if (!options.json) {
    std::printf("%-8s %-15s %5s %12s %9s %12s %10s %10s %7s\n", "backend", "op", "ranks", "bytes",
                "in place", "latency us", "alg GB/s", "bus GB/s", "errors");
    std::fflush(stdout);
  }
  comm::Spawn(options.ranks, RankMain,
              {.mode = options.mode, .argument = absl::StrJoin(arguments, "\n")})
      .ThrowIfFailed();
  return 0;
}

}  // namespace
}  // namespace lockstep::comm_bench

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  try {
    return lockstep::comm_bench::Run({argv + 1, argv + argc});
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "comm_bench: %s\n", error.message().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "comm_bench: %s\n", error.what());
  }
  return 1;
}
