// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How much of communication hides behind backward when the link is slow: GPT on two ranks, each a
// thread, over a link that is slowed by timed waits until communication takes half as long as
// backward. And what the statistics cost that are always on.
//
//   ./bazelw run //strategies/distributed_data_parallel:overlap_benchmark -- --model=mini
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/median.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/work.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/strategies/distributed_data_parallel/communication_hook.h"
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/gradient_bucket.h"
#include "lockstep/strategies/distributed_data_parallel/reduction_statistics.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

ABSL_FLAG(std::string, model, "mini", "nano, mini or small.");
ABSL_FLAG(int64_t, ranks, 2, "Ranks, threads of this process.");
ABSL_FLAG(int64_t, rows, 2, "Rows a rank.");
ABSL_FLAG(int64_t, steps, 8, "Steps measured; their median counts.");

namespace lockstep::strategies {
namespace {

// The group's average, and then a wait on the communication thread for as long as a link of this
// speed would have taken.
class SlowLinkHook final : public CommunicationHook {
 public:
  explicit SlowLinkHook(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}
  comm::Work Reduce(GradientBucket& bucket, comm::Communicator& group) override {
    const double seconds = static_cast<double>(bucket.buffer().bytes()) / bytes_per_second_;
    return group.AllReduce(bucket.buffer(), {.op = comm::ReduceOp::kAverage}).Then([seconds] {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    });
  }
  bool allows_passes_at_once() const override { return true; }

 private:
  double bytes_per_second_;
};

struct Figures {
  double step_seconds = 0;
  double backward_seconds = 0;
  double bytes = 0;
  double hidden_share = 0;
  int64_t parameters = 0;
  int64_t buckets = 0;
};

Figures Measure(std::shared_ptr<comm::Communicator> world, DistributedDataParallelOptions options) {
  ManualSeed(1);
  const models::Gpt2Config config = models::Gpt2Preset(absl::GetFlag(FLAGS_model));
  auto model = std::make_shared<models::Gpt2>(config);
  DistributedDataParallel ddp(model, world, options);
  optim::AdamW optimizer(model->NamedParameters(), {.lr = 1e-4});
  const Tensor ids = Zeros({absl::GetFlag(FLAGS_rows), config.block}, {.dtype = DType::kInt64});
  std::vector<double> steps, backwards, hidden;
  Figures figures;
  for (int64_t step = 0; step < absl::GetFlag(FLAGS_steps) + 3; ++step) {
    const Stopwatch whole;
    optimizer.ZeroGrad();
    const Tensor loss = model->Loss(ids, ids);
    const Stopwatch backward;
    autograd::Backward(loss);
    const double backward_seconds = backward.ElapsedSeconds();
    optimizer.Step();
    if (step < 3) continue;
    steps.push_back(whole.ElapsedSeconds());
    backwards.push_back(backward_seconds);
    const ReductionStatistics statistics = ddp.statistics();
    hidden.push_back(statistics.HiddenShare());
    figures.bytes = static_cast<double>(statistics.bytes);
  }
  ddp.FinishPending();
  figures.step_seconds = Median(steps);
  figures.backward_seconds = Median(backwards);
  figures.hidden_share = Median(hidden);
  figures.parameters = static_cast<int64_t>(ddp.reduced_parameters().size());
  figures.buckets = ddp.bucket_count();
  return figures;
}

// What a backward of these numbers of parameters and buckets does for its statistics alone, beside
// the smallest reductions of its buckets: the same with and without, in turns.
double StatisticsSeconds(comm::Communicator& world, int64_t parameters, int64_t buckets) {
  const std::vector<Tensor> tensors(static_cast<size_t>(buckets), Zeros({1}));
  std::vector<comm::Work> works(tensors.size());
  const auto plain = [&] {
    for (size_t b = 0; b < tensors.size(); ++b) works[b] = world.AllReduce(tensors[b]);
    for (const comm::Work& work : works) work.Wait();
  };
  BucketClock clock;
  ReductionStatistics current, last;
  Stopwatch since_last;
  const auto counted = [&] {
    using Kind = ReducerEvent::Kind;
    current = {};
    current.events.reserve(static_cast<size_t>(parameters + 2 * buckets));
    const comm::Traffic before = world.traffic();
    clock.Start(tensors.size());
    for (int64_t i = 0; i < parameters; ++i) current.events.push_back({Kind::kGradientReady, i});
    for (size_t b = 0; b < tensors.size(); ++b) {
      works[b] = world.AllReduce(tensors[b]);
      clock.Issued(b, tensors[b].bytes(), works[b]);
      current.events.push_back({Kind::kReduceIssued, static_cast<int64_t>(b)});
    }
    const Stopwatch waiting;
    for (size_t b = 0; b < tensors.size(); ++b) {
      works[b].Wait();
      current.events.push_back({Kind::kReduceWaited, static_cast<int64_t>(b)});
    }
    current.exposed_seconds = waiting.ElapsedSeconds();
    current.bytes_received = world.traffic().bytes_received - before.bytes_received;
    clock.Report(&current);
    current.step_seconds = since_last.ElapsedSeconds();
    since_last.Restart();
    last = std::move(current);
  };
  std::vector<double> differences;
  for (int round = 0; round < 2000; ++round) {
    Stopwatch watch;
    plain();
    const double without = watch.ElapsedSeconds();
    watch.Restart();
    counted();
    differences.push_back(watch.ElapsedSeconds() - without);
  }
  return Median(differences);
}

// Here once, so that a wrong flag is one line and not one a rank.
void CheckFlags() {
  models::Gpt2Preset(absl::GetFlag(FLAGS_model));
  const std::pair<const char*, int64_t> counts[] = {{"ranks", absl::GetFlag(FLAGS_ranks)},
                                                    {"rows", absl::GetFlag(FLAGS_rows)},
                                                    {"steps", absl::GetFlag(FLAGS_steps)}};
  for (const auto& [flag, count] : counts) {
    if (count >= 1 && count <= 1000) continue;
    throw InvalidArgumentError(absl::StrCat("--", flag, "=", count, ": give a count, 1 to 1000"));
  }
}

void RankMain(comm::RankContext& context) {
  const auto world = comm::InitProcessGroup(context.group_options());
  const auto report = [&](const char* what, const Figures& figures) {
    if (world->rank() != 0) return;
    std::printf("%-34s step %7.1f ms, backward %7.1f ms, hidden %3.0f %%\n", what,
                figures.step_seconds * 1e3, figures.backward_seconds * 1e3,
                figures.hidden_share * 100);
    std::fflush(stdout);
  };
  const Figures free = Measure(world, {.communication_hook = std::make_shared<NoOpHook>()});
  report("nothing sent", free);
  report("this machine's memory as the link", Measure(world, {}));
  Tensor speed = FromVector<double>({2 * free.bytes / free.backward_seconds}, {1});
  world->Broadcast(speed).Wait();
  const double bytes_per_second = speed.Item<double>();
  if (world->rank() == 0) std::printf("link: %.0f MB/s\n", bytes_per_second * 1e-6);
  const auto hook = std::make_shared<SlowLinkHook>(bytes_per_second);
  report("slow link, default buckets", Measure(world, {.communication_hook = hook}));
  report("slow link, 4 MiB buckets",
         Measure(world, {.bucket_cap_bytes = 4 << 20, .communication_hook = hook}));
  report("slow link, staleness 1", Measure(world, {.communication_hook = hook, .staleness = 1}));
  const double statistics = StatisticsSeconds(*world, free.parameters, free.buckets);
  if (world->rank() == 0) {
    std::printf("statistics: %.1f us a step of %lld parameters in %lld buckets, %.4f %% of it\n",
                statistics * 1e6, static_cast<long long>(free.parameters),
                static_cast<long long>(free.buckets), 100 * statistics / free.step_seconds);
  }
}

}  // namespace

void Main() {
  CheckFlags();
  comm::SpawnThreads(static_cast<int>(absl::GetFlag(FLAGS_ranks)), RankMain).ThrowIfFailed();
}

}  // namespace lockstep::strategies

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  try {
    lockstep::strategies::Main();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "overlap_benchmark: %s\n", error.what());
    return 1;
  }
  return 0;
}
