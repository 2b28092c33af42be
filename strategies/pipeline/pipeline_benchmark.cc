// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What running a pipeline costs beside the stages' own work.
//
//   ./bazelw run //strategies/pipeline:pipeline_benchmark
//
// * Engine/...: processor time of the whole process for an action of a step, less that of the same
//   forwards and backwards in a plain loop. Wanted: 5 us.
// * HandOver/transport against HandOver/plain, two threads that pass one tensor to and fro: wanted
//   at most twice the time.
// * Move/...: a letter of one tensor to another device, on one thread.
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/nn/linear.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/thread_transport.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::pipeline {
namespace {

constexpr int kStages = 4;
constexpr int kMicroBatches = 32;

double ProcessSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<Stage> SmallStages() {
  std::vector<Stage> stages;
  for (int s = 0; s < kStages; ++s) {
    stages.push_back(MakeStage(std::to_string(s), std::make_shared<nn::Linear>(3, 3)));
  }
  return stages;
}

Tensor MeanOf(TensorSpan outputs, TensorSpan /*targets*/) { return Mean(outputs[0]); }

// The work of a step in a plain loop, stage by stage.
double PlainSeconds(int repeats) {
  const std::vector<Stage> stages = SmallStages();
  const Tensor row = Ones({1, 3});
  const double start = ProcessSeconds();
  for (int i = 0; i < repeats * kMicroBatches; ++i) {
    TensorList x = {row};
    for (const Stage& stage : stages) x = stage.forward(x);
    autograd::Backward(Mul(MeanOf(x, {}), 1.0 / kMicroBatches));
  }
  return (ProcessSeconds() - start) / repeats;
}

void Engine(benchmark::State& state, const Schedule& schedule) {
  SetIntraOpThreads(1);
  Pipeline pipeline(SmallStages(), {.schedule = schedule, .loss = MeanOf, .threads_per_rank = 1});
  const Tensor batch = Ones({kMicroBatches, 3});
  for (int i = 0; i < 20; ++i) pipeline.Step({batch}, {});
  const double plain = PlainSeconds(50);
  double seconds = 0;
  for (auto unused : state) {
    const double start = ProcessSeconds();
    pipeline.Step({batch}, {});
    seconds += ProcessSeconds() - start;
  }
  const auto steps = static_cast<double>(state.iterations());
  const auto actions = static_cast<double>(pipeline.spans().size());
  state.counters["actions"] = actions;
  state.counters["engine_us_per_action"] = 1e6 * (seconds / steps - plain) / actions;
  state.counters["work_us_per_step"] = 1e6 * plain;
}

// ---- Hand-over ----

// What a letter box is at the least: a mutex, a condition, and the copy to the other device.
class PlainBox {
 public:
  explicit PlainBox(Device device) : device_(device) {}
  void Put(const Tensor& tensor) {
    Tensor copy = To(tensor, device_);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tensor_ = std::move(copy);
    }
    arrived_.notify_one();
  }
  Tensor Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait(lock, [this] { return tensor_.defined(); });
    return std::exchange(tensor_, {});
  }

 private:
  const Device device_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  Tensor tensor_;
};

constexpr int kRounds = 1000;

void HandOverPlain(benchmark::State& state) {
  const Tensor tensor = Ones({16});
  for (auto unused : state) {
    PlainBox there(Cpu(1)), back(Cpu(0));
    std::thread other([&] {
      for (int i = 0; i < kRounds; ++i) back.Put(there.Take());
    });
    Tensor x = tensor;
    for (int i = 0; i < kRounds; ++i) {
      there.Put(x);
      x = back.Take();
    }
    other.join();
  }
  state.SetItemsProcessed(state.iterations() * 2 * kRounds);
}

void HandOverTransport(benchmark::State& state) {
  const Tensor tensor = Ones({16});
  for (auto unused : state) {
    const auto post = std::make_shared<ThreadPost>(std::vector<Device>{Cpu(0), Cpu(1)}, 2, kRounds);
    std::thread other([&] {
      ThreadTransport transport(post, 1);
      for (int i = 0; i < kRounds; ++i) {
        transport.Expect({0, i, 0});
        transport.Send({1, i, 0}, transport.Take({0, i, 0}));
      }
    });
    ThreadTransport transport(post, 0);
    Letter letter = {{tensor}, {true}};
    for (int i = 0; i < kRounds; ++i) {
      transport.Send({0, i, 1}, std::move(letter));
      transport.Expect({1, i, 1});
      letter = transport.Take({1, i, 1});
    }
    other.join();
  }
  state.SetItemsProcessed(state.iterations() * 2 * kRounds);
}

// ---- Moving ----

void Move(benchmark::State& state) {
  const Tensor tensor = Ones({state.range(0) / 4});
  ThreadPost post({Cpu(0), Cpu(1)}, 1, 1);
  for (auto unused : state) {
    post.Put({0, 0, 1}, {{tensor}, {true}});
    benchmark::DoNotOptimize(post.Take(1, {0, 0, 0}));
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

BENCHMARK_CAPTURE(Engine, one_rank_of_four_stages, Interleaved(1, kStages, kMicroBatches))
    ->UseRealTime();
BENCHMARK_CAPTURE(Engine, four_ranks, OneForwardOneBackward(kStages, kMicroBatches))->UseRealTime();
BENCHMARK(HandOverPlain)->Name("HandOver/plain")->UseRealTime();
BENCHMARK(HandOverTransport)->Name("HandOver/transport")->UseRealTime();
BENCHMARK(Move)->RangeMultiplier(16)->Range(1 << 10, 64 << 20);

}  // namespace
}  // namespace lockstep::pipeline
