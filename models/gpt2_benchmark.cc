// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// One training step of GPT-2 on random tokens: forward, backward, AdamW. Prints one line for
// scripts.
//
//   ./bazelw run //models:gpt2_benchmark -- --size=mini --threads=2
//   ./bazelw run //models:gpt2_benchmark -- --size=mini --amp=bf16 --checkpoint=block
//   ./bazelw run //models:gpt2_benchmark -- --size=mini --profile --trace=step.json
//
// --profile prints, before that line, the table of kernels of three further steps; --trace writes
// them as a trace that Perfetto and chrome://tracing open.
//
// gflops counts 6 * parameters * tokens + 6 * layers * width * block * tokens (the causal half of
// the attention). peak_gflops is the median of 2048^3 matrix products in the step's dtype between
// the steps, so that a machine whose speed changes meanwhile changes both; peak_share is their
// ratio. The peer that the same step is measured with is tests/peers/torch_gpt.py.
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/base/caller_path.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/median.h"
#include "lockstep/checkpoint/measure_units.h"
#include "lockstep/checkpoint/offload.h"
#include "lockstep/checkpoint/setting.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/profile/machine_limits.h"
#include "lockstep/profile/profiler.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

ABSL_FLAG(std::string, size, "nano",
          "nano (batch 12 of 64 tokens), mini (8 of 256) or small (2 of 256).");
ABSL_FLAG(int, threads, 0, "Threads an op may use. 0: all processors.");
ABSL_FLAG(double, seconds, 12, "How long to measure, after three steps that are not counted.");
ABSL_FLAG(bool, profile, false, "Print the table of kernels of three steps.");
ABSL_FLAG(std::string, trace, "", "Write those steps to this file as a trace. Empty: do not.");
ABSL_FLAG(std::string, amp, "",
          "Mixed precision: bf16 or fp16, or pure_bf16 or pure_fp16 with the residual stream in 16 "
          "bits too. Empty: float32.");
ABSL_FLAG(std::string, checkpoint, "none",
          "Activation checkpointing: none, block (recompute each block), selective (all of it but "
          "contractions), or budget:SIZE, e.g. budget:64MiB.");
ABSL_FLAG(bool, offload_activations, false, "Keep activations on the host device meanwhile.");

namespace lockstep::models {
namespace {

struct Settings {
  std::string size;
  int64_t batch = 0;
  int threads = 0;
  double seconds = 0;
  bool profile = false;
  std::string trace;  // absolute path; empty: none
  std::optional<amp::AutocastOptions> autocast;
  checkpoint::CheckpointSetting checkpoint;
  bool offload_activations = false;
};

int64_t BatchOf(const std::string& size) {
  if (size == "nano") return 12;
  if (size == "mini") return 8;
  if (size == "small") return 2;
  throw InvalidArgumentError(absl::StrCat("--size=", size, ": give nano, mini or small"));
}

// parse(value); its error begins with the flag.
template <typename Parsed>
Parsed WithFlag(absl::string_view flag, const std::string& value,
                Parsed (*parse)(absl::string_view)) {
  try {
    return parse(value);
  } catch (const Error& error) {
    throw InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": ", error.message()));
  }
}

Settings SettingsFromFlags() {
  Settings settings;
  settings.size = absl::GetFlag(FLAGS_size);
  settings.batch = BatchOf(settings.size);
  settings.threads = absl::GetFlag(FLAGS_threads);
  settings.seconds = absl::GetFlag(FLAGS_seconds);
  settings.profile = absl::GetFlag(FLAGS_profile);
  settings.trace = CallerPath(absl::GetFlag(FLAGS_trace));
  if (settings.threads < 0) {
    throw InvalidArgumentError(
        absl::StrCat("--threads=", settings.threads, ": give 1 or more, or 0 for all processors"));
  }
  if (!(settings.seconds > 0 && std::isfinite(settings.seconds))) {
    throw InvalidArgumentError(
        absl::StrCat("--seconds=", settings.seconds, ": give a length of time above 0"));
  }
  settings.autocast = WithFlag("amp", absl::GetFlag(FLAGS_amp), &amp::ParseAutocast);
  settings.checkpoint =
      WithFlag("checkpoint", absl::GetFlag(FLAGS_checkpoint), &checkpoint::ParseCheckpointSetting);
  settings.offload_activations = absl::GetFlag(FLAGS_offload_activations);
  return settings;
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total_pages = 0, resident_pages = 0;
  file >> total_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

int64_t PeakResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// The speed of a product of two [side, side] matrices.
double MatMulGflops(int64_t side, DType dtype) {
  const Tensor a = To(RandomNormal({side, side}), dtype), b = To(RandomNormal({side, side}), dtype);
  Stopwatch watch;
  const Tensor c = MatMul(a, b);
  return 2.0 * std::pow(static_cast<double>(side), 3) / watch.ElapsedSeconds() / 1e9;
}

class TrainStep {
 public:
  TrainStep(const Gpt2Config& config, const Settings& settings)
      : model_(config),
        autocast_(settings.autocast),
        offload_(settings.offload_activations),
        optimizer_(model_.NamedParameters(), {.lr = 1e-3}),
        ids_(Tokens(config, settings.batch)),
        targets_(Tokens(config, settings.batch)) {
    checkpoint::ApplyCheckpointSetting(settings.checkpoint,
                                       checkpoint::UnitsOf(model_.transformer()->h()),
                                       [this] { return Forward(); });
  }

  void Run() {
    Tensor loss;
    {
      profile::Range range("forward");
      std::optional<checkpoint::OffloadActivations> offload;
      if (offload_) offload.emplace();
      loss = Forward();
    }
    {
      profile::Range range("backward");
      autograd::Backward(loss);
    }
    profile::Range range("optimizer");
    optimizer_.Step();
    optimizer_.ZeroGrad();
  }

  int64_t tokens() const { return ids_.numel(); }
  double flops() const {
    const Gpt2Config& config = model_.config();
    const auto parameters = static_cast<double>(model_.ParameterCount());
    const auto attention = static_cast<double>(config.layers * config.width * config.block);
    return 6 * (parameters + attention) * static_cast<double>(tokens());
  }

 private:
  Tensor Forward() {
    std::optional<amp::Autocast> autocast;
    if (autocast_) autocast.emplace(*autocast_);
    return model_.Loss(ids_, targets_);
  }

  static Tensor Tokens(const Gpt2Config& config, int64_t batch) {
    const double count = static_cast<double>(config.vocabulary);
    return To(RandomUniform({batch, config.block}, 0, count), DType::kInt64);
  }

  Gpt2 model_;
  std::optional<amp::AutocastOptions> autocast_;
  bool offload_;
  optim::AdamW optimizer_;
  Tensor ids_, targets_;
};

void Profile(const Settings& settings, TrainStep& step) {
  const profile::MachineLimits limits = profile::MeasureMachineLimits();
  step.Run();  // the measurement has emptied the processor's caches
  auto profiler = std::make_shared<profile::Profiler>();
  {
    profile::ProfileScope scope(profiler);
    for (int i = 0; i < 3; ++i) step.Run();
  }
  if (settings.profile) std::printf("%s", profiler->Table(limits).c_str());
  if (!settings.trace.empty()) profiler->WriteTrace(settings.trace);
}

void Run(const Settings& settings) {
  SetIntraOpThreads(settings.threads);
  ManualSeed(1);
  const DType dtype = settings.autocast ? *settings.autocast->dtype : DType::kFloat32;
  MatMulGflops(256, dtype);
  const int64_t resident_at_start = ResidentBytes();
  ResetPeakBytes(Cpu());
  TrainStep step(Gpt2Preset(settings.size), settings);
  for (int i = 0; i < 3; ++i) step.Run();
  // Here, because the products between the steps have memory of their own.
  const int64_t peak_bytes = GetMemoryStats(Cpu()).peak_bytes;

  std::vector<double> step_seconds, matmul_gflops;
  double since_matmul = 0;
  for (Stopwatch all; all.ElapsedSeconds() < settings.seconds;) {
    Stopwatch watch;
    step.Run();
    step_seconds.push_back(watch.ElapsedSeconds());
    since_matmul += step_seconds.back();
    if (since_matmul < 0.5) continue;
    since_matmul = 0;
    matmul_gflops.push_back(MatMulGflops(2048, dtype));
  }
  if (settings.profile || !settings.trace.empty()) Profile(settings, step);
  const double seconds = Median(step_seconds);
  const double gflops = step.flops() / seconds / 1e9;
  const double peak_gflops = Median(matmul_gflops);
  std::printf(
      "size=%s tokens_per_second=%.0f gflops=%.1f peak_gflops=%.1f peak_share=%.2f step_ms=%.2f "
      "peak_bytes=%lld resident_bytes_above_start=%lld\n",
      settings.size.c_str(), static_cast<double>(step.tokens()) / seconds, gflops, peak_gflops,
      gflops / peak_gflops, seconds * 1e3, static_cast<long long>(peak_bytes),
      static_cast<long long>(PeakResidentBytes() - resident_at_start));
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument != "--help" && argument != "-help") continue;
    std::printf(
        "Times a training step of GPT-2.\n"
        "  --size=nano|mini|small  --threads=N (0: all processors)  --seconds=S\n"
        "  --amp=bf16|fp16|pure_bf16|pure_fp16\n"
        "  --checkpoint=block|selective|budget:SIZE  --offload_activations\n"
        "  --profile (prints the table of kernels)  --trace=FILE (for Perfetto)\n");
    return 0;
  }
  try {
    const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
    if (rest.size() > 1) {
      throw InvalidArgumentError(absl::StrCat("unknown argument '", rest[1], "'; see --help"));
    }
    Run(SettingsFromFlags());
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "gpt2_benchmark: %s\n", error.message().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpt2_benchmark: %s\n", error.what());
  }
  return 1;
}

}  // namespace
}  // namespace lockstep::models

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;  // no files
  google::InitGoogleLogging(argv[0]);
  return lockstep::models::Main(argc, argv);
}
