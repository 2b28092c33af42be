// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What DataParallel costs: training steps of GPT-2 on one device with as many threads, on N devices
// of one process, and on N ranks of DistributedDataParallel (threads of this process), all with the
// same rows; the peak bytes of the devices; and what threads that stay save.
//
//   ./bazelw run //strategies/data_parallel:data_parallel_benchmark -- --size=mini --devices=2
//
// Beside the time, the processors' time is given: on a machine with other work it is the steadier
// measure of what each way adds. The ways take turns, a few steps each, so that a machine whose
// speed changes meanwhile changes them alike; figures are medians.
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/time/time.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/median.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/strategies/data_parallel/data_parallel.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor_tree.h"
#include "lockstep/tensor/thread_state.h"

ABSL_FLAG(std::string, size, "nano", "nano, mini or small.");
ABSL_FLAG(int, devices, 2, "Devices, ranks, and threads of the one device.");
ABSL_FLAG(int64_t, rows, 8, "Rows of a step in all, of the model's block each.");
ABSL_FLAG(int, rounds, 5, "How often each way has its turn.");
ABSL_FLAG(int, steps, 3, "Steps of a turn, after one that is not counted.");

namespace lockstep::strategies {
namespace {

struct Work {
  models::Gpt2Config config;
  int64_t rows = 0;
  int devices = 0;
  int steps = 0;
};

TensorTree Batch(const Work& work, int64_t rows) {
  const double tokens = static_cast<double>(work.config.vocabulary);
  const Tensor ids = To(RandomUniform({rows, work.config.block}, 0, tokens), DType::kInt64);
  return {ids, ids};
}

struct Cost {
  double seconds = 0;            // a step
  double processor_seconds = 0;  // of all threads of the process
};

double ProcessorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// `loss` has the history of the whole batch.
Cost TimeSteps(
    models::Gpt2& model, const Work& work, const std::function<Tensor()>& loss,
    const std::function<void()>& before_timing = [] {}) {
  optim::AdamW optimizer(model.NamedParameters(), {.lr = 1e-3});
  const auto step = [&] {
    optimizer.ZeroGrad();
    autograd::Backward(loss());
    optimizer.Step();
  };
  step();
  before_timing();
  const double processor_start = ProcessorSeconds();
  const Stopwatch watch;
  for (int i = 0; i < work.steps; ++i) step();
  return {watch.ElapsedSeconds() / work.steps, (ProcessorSeconds() - processor_start) / work.steps};
}

Cost OneDevice(const Work& work) {
  ManualSeed(1);
  SetIntraOpThreads(work.devices);
  models::Gpt2 model(work.config);
  const TensorTree batch = Batch(work, work.rows);
  return TimeSteps(model, work, [&] { return model.Loss(batch[0].tensor(), batch[1].tensor()); });
}

Cost OneProcess(const Work& work) {
  ManualSeed(1);
  SetIntraOpThreads(work.devices);
  const auto model = std::make_shared<models::Gpt2>(work.config);
  DataParallel parallel(model, {.devices = CpuDevices(work.devices)});
  const TensorTree batch = Batch(work, work.rows);
  return TimeSteps(*model, work, [&] {
    return parallel.MeanLoss(
        [&](const TensorTree& in) {
          return TensorTree(model->Loss(in[0].tensor(), in[1].tensor()));
        },
        batch);
  });
}

Cost Ranks(const Work& work) {
  Cost cost;
  comm::SpawnThreads(work.devices, [&](comm::RankContext& context) {
    comm::ProcessGroupOptions options = context.group_options();
    options.timeout = absl::Minutes(5);
    const auto world = comm::InitProcessGroup(options);
    ManualSeed(1, context.rank);
    SetIntraOpThreads(1);
    const auto model = std::make_shared<models::Gpt2>(work.config);
    const DistributedDataParallel ddp(model, world);
    const TensorTree batch = Batch(work, work.rows / work.devices);
    const Cost mine = TimeSteps(
        *model, work, [&] { return model->Loss(batch[0].tensor(), batch[1].tensor()); },
        [&] { world->Barrier().Wait(); });
    if (context.rank == 0) cost = mine;
  }).ThrowIfFailed();
  return cost;
}

Cost MedianCost(const std::vector<Cost>& costs) {
  std::vector<double> seconds, processor_seconds;
  for (const Cost& cost : costs) {
    seconds.push_back(cost.seconds);
    processor_seconds.push_back(cost.processor_seconds);
  }
  return {Median(seconds), Median(processor_seconds)};
}

void CompareSteps(const Work& work, int rounds) {
  std::vector<Cost> one, process, ranks;
  for (int i = 0; i < rounds; ++i) {
    one.push_back(OneDevice(work));
    process.push_back(OneProcess(work));
    ranks.push_back(Ranks(work));
  }
  const double base = MedianCost(one).seconds;
  const auto print = [&](const char* what, const std::vector<Cost>& costs) {
    const Cost cost = MedianCost(costs);
    std::printf("%-28s %9.2f ms a step, %5.1f %% of one device's speed, %9.2f ms of processors\n",
                what, 1e3 * cost.seconds, 100 * base / cost.seconds, 1e3 * cost.processor_seconds);
  };
  print("one device, as many threads", one);
  print("DataParallel", process);
  print("DistributedDataParallel", ranks);
}

// Peak bytes of each device over steps of a DataParallel.
void PrintPeaks(const Work& work) {
  std::vector<int64_t> before;
  for (int i = 0; i < work.devices; ++i) {
    before.push_back(GetMemoryStats(Cpu(i)).current_bytes);
    ResetPeakBytes(Cpu(i));
  }
  OneProcess(work);
  for (int i = 0; i < work.devices; ++i) {
    const int64_t peak = GetMemoryStats(Cpu(i)).peak_bytes - before[static_cast<size_t>(i)];
    std::printf("peak of cpu:%d %37.1f MB\n", i, static_cast<double>(peak) / 1e6);
  }
}

// One small op on each device: on the threads that ParallelApply keeps, and on new ones.
void CompareThreads(int devices) {
  constexpr int kCalls = 200;
  const std::vector<TensorTree> inputs(static_cast<size_t>(devices), TensorTree(0));
  const auto work = [](const TensorTree&) { return TensorTree(Ones({64, 64}) * 2.0); };
  const std::vector<ReplicaFunction> functions(static_cast<size_t>(devices), work);
  const std::vector<Device> list = CpuDevices(devices);
  for (const int threads : {1, 2}) {
    std::vector<double> kept, fresh;
    for (int call = 0; call < kCalls; ++call) {
      Stopwatch watch;
      ParallelApply(functions, inputs, list, {.threads_per_device = threads});
      kept.push_back(watch.ElapsedSeconds());
      watch = Stopwatch();
      std::vector<std::thread> all;
      for (int i = 1; i < devices; ++i) {
        all.emplace_back([&, i, state = CurrentThreadState()] {
          ScopedThreadState scope(state);
          DeviceScope device(Cpu(i));
          SetIntraOpThreads(threads);
          work(inputs[0]);
        });
      }
      work(inputs[0]);
      for (std::thread& thread : all) thread.join();
      fresh.push_back(watch.ElapsedSeconds());
    }
    std::printf("a call on kept threads, %d per device %15.1f us, on new ones %.1f us\n", threads,
                1e6 * Median(kept), 1e6 * Median(fresh));
  }
}

void Run() {
  Work work;
  work.config = models::Gpt2Preset(absl::GetFlag(FLAGS_size));
  work.rows = absl::GetFlag(FLAGS_rows);
  work.devices = absl::GetFlag(FLAGS_devices);
  work.steps = absl::GetFlag(FLAGS_steps);
  CompareSteps(work, absl::GetFlag(FLAGS_rounds));
  PrintPeaks(work);
  CompareThreads(work.devices);
}

}  // namespace
}  // namespace lockstep::strategies

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  try {
    lockstep::strategies::Run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "data_parallel_benchmark: %s\n", error.what());
    return 1;
  }
}
