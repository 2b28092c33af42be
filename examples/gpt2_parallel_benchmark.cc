// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Training steps of GPT-2 on random tokens under a strategy: forward, backward with whatever the
// strategy moves, AdamW. Prints one line for scripts.
//
//   ./bazelw run //examples:gpt2_parallel_benchmark -- --size=mini --strategy=ddp --ranks=2
//   ./bazelw run //examples:gpt2_parallel_benchmark -- --size=mini --strategy=single
//
// The rows of a step are the size's or --rows, on all ranks together. step_ms is rank 0's median;
// the other ranks take as long, because they wait for each other. processor_ms is the time of
// processors in a step, of all threads of all ranks (rank 0's median, times the ranks): on a
// machine with other work it is the steadier measure. The peer that the same steps are measured
// with is tests/peers/torch_gpt.py.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/median.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/examples/gpt2_stages.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/gpt2_parts.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/strategies/data_parallel/data_parallel.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/strategies/model_parallel/model_parallel.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor_tree.h"
#include "lockstep/tensor/thread_state.h"

ABSL_FLAG(std::string, size, "nano", "nano, mini or small.");
ABSL_FLAG(std::string, strategy, "ddp",
          "single, ddp, dp, model_parallel, fsdp, fsdp_grad_op or fsdp_offload (units: blocks), or "
          "gpipe, 1f1b or zb_h1 (a pipeline, a stage a device).");
ABSL_FLAG(int, ranks, 0,
          "Ranks, devices of dp, model_parallel and pipelines. 0: 2, or 1 for single.");
ABSL_FLAG(int, micro_batches, 0, "gpipe, 1f1b and zb_h1: micro-batches of a step. 0: one a row.");
ABSL_FLAG(int64_t, rows, 0, "Rows of a step, of all ranks. 0: 12 of nano, 8 of mini, 2 of small.");
ABSL_FLAG(int, threads, 0, "Threads of all ranks or devices together. 0: all processors.");
ABSL_FLAG(int, steps, 15, "Steps measured, after three that are not counted.");
ABSL_FLAG(bool, gradient_as_bucket_view, false, "ddp: gradients are the buckets' memory.");
ABSL_FLAG(std::string, amp, "", "Mixed precision, as bf16. Empty: float32.");

namespace lockstep::examples {
namespace {

constexpr int kStepsBefore = 3;

struct Settings {
  std::string size;
  std::string strategy;
  int ranks = 0;
  int64_t rows = 0;
  int threads = 0;  // of each rank, or of the one process where ranks are devices
  int steps = 0;
  bool gradient_as_bucket_view = false;
  std::string amp;
  int micro_batches = 1;  // of pipelines

  bool is_pipeline() const {
    return strategy == "gpipe" || strategy == "1f1b" || strategy == "zb_h1";
  }
  bool has_processes() const {
    return strategy != "dp" && strategy != "model_parallel" && !is_pipeline();
  }
  bool divides_rows() const { return strategy != "model_parallel" && !is_pipeline(); }
  int64_t rows_per_process() const { return has_processes() ? rows / ranks : rows; }
};

void Require(bool holds, absl::string_view flag, const absl::AlphaNum& value,
             absl::string_view remedy) {
  if (!holds) throw InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": ", remedy));
}

int64_t RowsOf(absl::string_view size) { return size == "nano" ? 12 : size == "mini" ? 8 : 2; }

Settings SettingsFromFlags() {
  Settings settings;
  settings.size = absl::GetFlag(FLAGS_size);
  Require(settings.size == "nano" || settings.size == "mini" || settings.size == "small", "size",
          settings.size, "give nano, mini or small");
  settings.strategy = absl::GetFlag(FLAGS_strategy);
  const bool single = settings.strategy == "single";
  const std::vector<absl::string_view> known = {
      "single",       "ddp",          "dp",    "model_parallel", "fsdp",
      "fsdp_grad_op", "fsdp_offload", "gpipe", "1f1b",           "zb_h1"};
  Require(std::find(known.begin(), known.end(), settings.strategy) != known.end(), "strategy",
          settings.strategy, absl::StrCat("give one of ", absl::StrJoin(known, ", ")));
  settings.ranks = absl::GetFlag(FLAGS_ranks);
  Require(settings.ranks >= 0 && settings.ranks <= 8, "ranks", settings.ranks, "give 1 to 8");
  if (settings.ranks == 0) settings.ranks = single ? 1 : 2;
  Require(!single || settings.ranks == 1, "ranks", settings.ranks, "is 1 with --strategy=single");
  settings.rows = absl::GetFlag(FLAGS_rows);
  Require(settings.rows >= 0, "rows", settings.rows, "give 1 or more, or 0 for the size's");
  if (settings.rows == 0) settings.rows = RowsOf(settings.size);
  Require(!settings.divides_rows() || settings.rows % settings.ranks == 0, "ranks", settings.ranks,
          absl::StrCat("does not divide the ", settings.rows, " rows of a step"));
  const int threads = absl::GetFlag(FLAGS_threads);
  Require(threads >= 0, "threads", threads, "give 1 or more, or 0 for all processors");
  const int all = threads > 0 ? threads : static_cast<int>(std::thread::hardware_concurrency());
  settings.threads = settings.has_processes() ? std::max(1, all / settings.ranks) : all;
  const int micro_batches = absl::GetFlag(FLAGS_micro_batches);
  Require(micro_batches == 0 || settings.is_pipeline(), "micro_batches", micro_batches,
          "is for --strategy=gpipe, 1f1b and zb_h1");
  Require(micro_batches >= 0 && micro_batches <= settings.rows, "micro_batches", micro_batches,
          absl::StrCat("give 1 to the ", settings.rows, " rows of a step, or 0 for one a row"));
  settings.micro_batches = micro_batches > 0 ? micro_batches : static_cast<int>(settings.rows);
  settings.steps = absl::GetFlag(FLAGS_steps);
  Require(settings.steps >= 1, "steps", settings.steps, "give a count >= 1");
  settings.gradient_as_bucket_view = absl::GetFlag(FLAGS_gradient_as_bucket_view);
  Require(!settings.gradient_as_bucket_view || settings.strategy == "ddp",
          "gradient_as_bucket_view", "true", "is for --strategy=ddp");
  settings.amp = absl::GetFlag(FLAGS_amp);
  try {
    amp::ParseAutocast(settings.amp);
  } catch (const Error& error) {
    Require(false, "amp", settings.amp, error.message());
  }
  return settings;
}

// For spawned ranks.
std::string Serialize(const Settings& settings) {
  return absl::StrCat(settings.size, ",", settings.strategy, ",", settings.ranks, ",",
                      settings.rows, ",", settings.threads, ",", settings.steps, ",",
                      int{settings.gradient_as_bucket_view}, ",", settings.amp, ",",
                      settings.micro_batches);
}

Settings Deserialize(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  return {.size = parts.at(0),
          .strategy = parts.at(1),
          .ranks = std::stoi(parts.at(2)),
          .rows = std::stoll(parts.at(3)),
          .threads = std::stoi(parts.at(4)),
          .steps = std::stoi(parts.at(5)),
          .gradient_as_bucket_view = parts.at(6) == "1",
          .amp = parts.at(7),
          .micro_batches = std::stoi(parts.at(8))};
}

struct Wrapped {
  // The mean loss over the rows of (ids, targets), under a strategy that the function keeps alive.
  std::function<Tensor(const Tensor& ids, const Tensor& targets)> loss;
  // More fields of the line: " name=value". May be null.
  std::function<std::string()> fields = nullptr;
  // In place of `loss`, where forward and backward are one call.
  std::function<Tensor(const Tensor& ids, const Tensor& targets)> forward_backward = nullptr;
  // Whose parameters are trained. Null: the model's.
  nn::Module* module = nullptr;
};

Wrapped WrapPipeline(const Settings& settings, const models::Gpt2& model) {
  const int stages = settings.ranks, micro_batches = settings.micro_batches;
  pipeline::PipelineOptions options = Gpt2PipelineOptions(model.config(), stages);
  options.schedule = settings.strategy == "gpipe" ? pipeline::GPipe(stages, micro_batches)
                     : settings.strategy == "1f1b"
                         ? pipeline::OneForwardOneBackward(stages, micro_batches)
                         : pipeline::ZeroBubbleH1(stages, micro_batches);
  std::vector<pipeline::Stage> parts;
  for (const models::Gpt2Part& part : BalancedGpt2Parts(model, stages)) {
    parts.push_back(StageOf(part));
  }
  auto pipe = std::make_shared<pipeline::Pipeline>(std::move(parts), std::move(options));
  Wrapped wrapped;
  wrapped.forward_backward = [pipe](const Tensor& ids, const Tensor& targets) {
    return FromVector<double>({pipe->Step({ids}, {targets}).loss}, {});
  };
  wrapped.fields = [pipe, micro_batches] {
    return absl::StrFormat(" micro_batches=%d bubble=%.3f", micro_batches,
                           pipe->MeasuredTimeline().bubble);
  };
  wrapped.module = &pipe->module();
  return wrapped;
}

// Where strategies differ, and all that a step needs to know of one. The optimizer is made
// afterwards, of the module's parameters as the strategy leaves them.
Wrapped Wrap(const Settings& settings, const std::shared_ptr<models::Gpt2>& model,
             const std::shared_ptr<comm::Communicator>& world) {
  if (settings.is_pipeline()) return WrapPipeline(settings, *model);
  if (settings.strategy == "ddp") {
    auto ddp = std::make_shared<strategies::DistributedDataParallel>(
        model, world,
        strategies::DistributedDataParallelOptions{.gradient_as_bucket_view =
                                                       settings.gradient_as_bucket_view});
    return {[model, ddp](const Tensor& ids, const Tensor& targets) {
      return model->Loss(ids, targets);
    }};
  }
  if (settings.strategy == "dp") {
    auto parallel = std::make_shared<strategies::DataParallel>(
        model, strategies::DataParallelOptions{.devices = strategies::CpuDevices(settings.ranks)});
    return {[model, parallel](const Tensor& ids, const Tensor& targets) {
      const auto on_replica = [&](const TensorTree& rows) {
        return TensorTree(model->Loss(rows[0].tensor(), rows[1].tensor()));
      };
      return parallel->MeanLoss(on_replica, {ids, targets});
    }};
  }
  if (settings.strategy == "model_parallel") {
    const std::vector<Device> devices = strategies::CpuDevices(settings.ranks);
    auto parts = std::make_shared<strategies::ModelParallel>(model, PlaceGpt2(*model, devices));
    for (const Device device : devices) ResetPeakBytes(device);
    return {[model, parts](const Tensor& ids, const Tensor& targets) {
              return model->Loss(ids, targets);
            },
            [devices] {
              std::string text = " peak_bytes_by_device=";
              for (const Device device : devices) {
                absl::StrAppend(&text, device == devices[0] ? "" : ",",
                                GetMemoryStats(device).peak_bytes);
              }
              return text;
            }};
  }
  if (absl::StartsWith(settings.strategy, "fsdp")) {
    strategies::FullyShardedDataParallelOptions options;
    options.wrap_policy = strategies::WrapByType<models::Gpt2Block>();
    options.cpu_offload = settings.strategy == "fsdp_offload";
    if (settings.strategy == "fsdp_grad_op") {
      options.sharding_strategy = strategies::ShardingStrategy::kShardGradOp;
    }
    auto fsdp = std::make_shared<strategies::FullyShardedDataParallel>(model, world, options);
    return {[model, fsdp](const Tensor& ids, const Tensor& targets) {
              return model->Loss(ids, targets);
            },
            [fsdp] {
              return absl::StrFormat(" hidden_gather_share=%.2f",
                                     fsdp->statistics().hidden_gather_share());
            }};
  }
  return {[model](const Tensor& ids, const Tensor& targets) { return model->Loss(ids, targets); }};
}

Tensor Tokens(const models::Gpt2Config& config, int64_t rows) {
  const double count = static_cast<double>(config.vocabulary);
  return To(RandomUniform({rows, config.block}, 0, count), DType::kInt64);
}

// Of all threads of this process.
double ProcessorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void Measure(const Settings& settings, const std::shared_ptr<comm::Communicator>& world) {
  SetIntraOpThreads(settings.threads);
  ManualSeed(1, world->rank());
  const models::Gpt2Config config = models::Gpt2Preset(settings.size);
  auto model = std::make_shared<models::Gpt2>(config);
  const Wrapped wrapped = Wrap(settings, model, world);
  nn::Module& trained = wrapped.module != nullptr ? *wrapped.module : *model;
  optim::AdamW optimizer(trained.NamedParameters(), {.lr = 1e-3});
  const std::optional<amp::AutocastOptions> options = amp::ParseAutocast(settings.amp);
  const Tensor ids = Tokens(config, settings.rows_per_process());
  const Tensor targets = Tokens(config, settings.rows_per_process());
  const auto step = [&] {
    Tensor loss;
    {
      std::optional<amp::Autocast> autocast;
      if (options) autocast.emplace(*options);
      loss = wrapped.forward_backward ? wrapped.forward_backward(ids, targets)
                                      : wrapped.loss(ids, targets);
    }
    if (!wrapped.forward_backward) autograd::Backward(loss);
    optimizer.Step();
    optimizer.ZeroGrad();
    return loss;
  };
  for (int i = 0; i < kStepsBefore; ++i) step();
  std::vector<double> seconds, processor_seconds;
  Tensor loss;
  for (int i = 0; i < settings.steps; ++i) {
    const double processors = ProcessorSeconds();
    const Stopwatch watch;
    loss = step();
    seconds.push_back(watch.ElapsedSeconds());
    processor_seconds.push_back(ProcessorSeconds() - processors);
  }
  if (world->rank() != 0) return;
  const double median = Median(seconds);
  const double tokens = static_cast<double>(settings.rows * config.block);
  std::printf(
      "size=%s strategy=%s ranks=%d rows=%lld threads=%d amp=%s step_ms=%.2f "
      "tokens_per_second=%.0f "
      "processor_ms=%.2f peak_bytes=%lld loss=%.3f%s\n",
      settings.size.c_str(), settings.strategy.c_str(), settings.ranks,
      static_cast<long long>(settings.rows), settings.threads,
      settings.amp.empty() ? "none" : settings.amp.c_str(), median * 1e3, tokens / median,
      Median(processor_seconds) * 1e3 * world->size(),
      static_cast<long long>(GetMemoryStats(Cpu()).peak_bytes), loss.Item<double>(),
      wrapped.fields ? wrapped.fields().c_str() : "");
}

void RankMain(comm::RankContext& context) {
  Measure(Deserialize(context.argument), comm::InitProcessGroup(context.group_options()));
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument != "--help" && argument != "-help") continue;
    std::printf(
        "Times training steps of GPT-2 under a strategy.\n"
        "  --size=nano|mini|small  --ranks=N (devices of dp, model_parallel and pipelines)\n"
        "  --strategy=single|ddp|dp|model_parallel|fsdp|fsdp_grad_op|fsdp_offload\n"
        "             or a pipeline, gpipe|1f1b|zb_h1, of --micro_batches=N (0: one a row)\n"
        "  --threads=N (of all ranks together; 0: all processors)  --steps=N\n"
        "  --rows=N (of a step)  --gradient_as_bucket_view (of ddp)\n"
        "  --amp=bf16|fp16|pure_bf16|pure_fp16 (without a scaler: for time only)\n");
    return 0;
  }
  try {
    const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
    if (rest.size() > 1) {
      throw InvalidArgumentError(absl::StrCat("unknown argument '", rest[1], "'; see --help"));
    }
    const Settings settings = SettingsFromFlags();
    comm::SpawnOptions options;
    options.argument = Serialize(settings);
    options.threads_per_rank = settings.threads;
    comm::Spawn(settings.has_processes() ? settings.ranks : 1, &RankMain, options).ThrowIfFailed();
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "gpt2_parallel_benchmark: %s\n", error.message().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpt2_parallel_benchmark: %s\n", error.what());
  }
  return 1;
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;  // no files
  google::InitGoogleLogging(argv[0]);
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  return lockstep::examples::Main(argc, argv);
}
