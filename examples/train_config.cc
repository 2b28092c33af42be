// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/train_config.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/setting.h"
#include "lockstep/examples/adamw_groups.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/schedules/warmup.h"
#include "lockstep/strategies/distributed_data_parallel/hook_setting.h"
#include "lockstep/strategies/distributed_data_parallel/power_sgd.h"
#include "lockstep/strategies/engine/engine_support.h"
#include "nlohmann/json.hpp"

namespace lockstep::examples {
namespace {

// Rows and passes of a step: more than anyone asks for, and their product with the bytes of a row
// stays far from overflow.
constexpr int64_t kMaximumRanks = 64;
constexpr int64_t kMaximumCount = 1'000'000;
constexpr int64_t kMaximumBucketMib = 1 << 20;  // 1 TiB

void Require(bool holds, absl::string_view flag, const absl::AlphaNum& value,
             absl::string_view remedy) {
  if (!holds) throw InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": ", remedy));
}

// The learning rate that a file in DeepSpeed's vocabulary leads to, and its key.
struct FileRate {
  double lr = 0;
  const char* key = "";
};

// `otherwise`: where the file has none.
FileRate PeakRate(const engine::DeepSpeedConfig& settings, double otherwise) {
  FileRate rate{otherwise, "optimizer.params.lr"};
  if (settings.optimizer.has_value()) {
    rate.lr = std::visit([](const auto& options) { return options.lr; }, *settings.optimizer);
  }
  // These two set the rate, whatever the optimizer has.
  const auto set_by = [&](const auto* schedule) {
    if (schedule != nullptr) rate = {schedule->warmup_max_lr, "scheduler.params.warmup_max_lr"};
  };
  if (settings.scheduler.has_value()) {
    set_by(std::get_if<optim::WarmupLrOptions>(&*settings.scheduler));
    set_by(std::get_if<optim::WarmupDecayLrOptions>(&*settings.scheduler));
  }
  return rate;
}

struct JsonWriter {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  template <typename T>
  void operator()(const char* name, const T& value) {
    json[name] = value;
  }
};

struct JsonReader {
  const nlohmann::ordered_json& json;
  template <typename T>
  void operator()(const char* name, T& value) {
    value = json.at(name).get<T>();
  }
};

struct StateWriter {
  state::TrainingState& state;
  void operator()(const char* name, int64_t value) { Put(name, value); }
  void operator()(const char* name, bool value) { Put(name, int64_t{value}); }
  void operator()(const char* name, double value) { Put(name, value); }
  void operator()(const char* name, const std::string& value) { Put(name, value); }
  void operator()(const char* name, const std::vector<std::string>& value) {
    Put(name, absl::StrJoin(value, ","));
  }
  void Put(const char* name, state::Value value) {
    state.Set(absl::StrCat("config.", name), std::move(value));
  }
};

struct StateReader {
  const state::TrainingState& state;
  template <typename T>
  void operator()(const char* name, T& value) {
    if (state.values.contains(Key(name))) Get(name, value);
  }
  void Get(const char* name, int64_t& value) { value = state.Integer(Key(name)); }
  void Get(const char* name, bool& value) { value = state.Integer(Key(name)) != 0; }
  void Get(const char* name, double& value) { value = state.Real(Key(name)); }
  void Get(const char* name, std::string& value) { value = state.Text(Key(name)); }
  void Get(const char* name, std::vector<std::string>& value) {
    const std::string& text = state.Text(Key(name));
    value.clear();
    if (!text.empty()) value = absl::StrSplit(text, ',');
  }
  static std::string Key(const char* name) { return absl::StrCat("config.", name); }
};

// Throws what `parse` throws, naming the flag.
template <typename Parse>
void RequireParses(absl::string_view flag, const std::string& value, Parse parse) {
  try {
    parse(value);
  } catch (const Error& error) {
    Require(false, flag, value, error.message());
  }
}

}  // namespace

template <typename Self, typename Visitor>
void TrainConfig::VisitFields(Self& self, Visitor&& visit) {
  visit("data", self.data);
  visit("extensions", self.extensions);
  visit("model", self.model);
  visit("layers", self.layers);
  visit("heads", self.heads);
  visit("width", self.width);
  visit("block", self.block);
  visit("strategy", self.strategy);
  visit("ranks", self.ranks);
  visit("devices", self.devices);
  visit("stages", self.stages);
  visit("schedule", self.schedule);
  visit("stages_per_rank", self.stages_per_rank);
  visit("shards", self.shards);
  visit("threads_per_rank", self.threads_per_rank);
  visit("steps", self.steps);
  visit("batch", self.batch);
  visit("micro_batches", self.micro_batches);
  visit("lr", self.lr);
  visit("seed", self.seed);
  visit("amp", self.amp);
  visit("checkpoint", self.checkpoint);
  visit("offload_activations", self.offload_activations);
  visit("accumulate", self.accumulate);
  visit("bucket_cap_mb", self.bucket_cap_mb);
  visit("static_graph", self.static_graph);
  visit("find_unused_parameters", self.find_unused_parameters);
  visit("gradient_as_bucket_view", self.gradient_as_bucket_view);
  visit("comm_hook", self.comm_hook);
  visit("local_sgd_period", self.local_sgd_period);
  visit("staleness", self.staleness);
  visit("wrap", self.wrap);
  visit("replicas", self.replicas);
  visit("reshard_ranks", self.reshard_ranks);
  visit("backward_prefetch", self.backward_prefetch);
  visit("forward_prefetch", self.forward_prefetch);
  visit("cpu_offload", self.cpu_offload);
  visit("param_dtype", self.param_dtype);
  visit("deferred_init", self.deferred_init);
  visit("config", self.config);
  visit("config_text", self.config_text);
  visit("init_from", self.init_from);
  visit("state", self.state_layout);
  visit("out", self.out);
  visit("save_every", self.save_every);
  visit("keep", self.keep);
  visit("resume", self.resume);
}

bool TrainConfig::HasFsdp() const {
  return strategy == "fsdp" || strategy == "fsdp_grad_op" || strategy == "hybrid" ||
         strategy == "hybrid_grad_op" || strategy == "no_shard";
}

int64_t TrainConfig::StepsBeforeCompression() const {
  const auto hook = std::dynamic_pointer_cast<strategies::PowerSgdHook>(
      strategies::ParseCommunicationHook(comm_hook));
  return hook == nullptr ? 0 : hook->options().start_step;
}

void TrainConfig::ResolveSharding() {
  const bool hybrid = strategy == "hybrid" || strategy == "hybrid_grad_op";
  int64_t elements = 0;
  Require(wrap == "block" || wrap == "none" ||
              (absl::StartsWith(wrap, "size:") &&
               absl::SimpleAtoi(absl::StripPrefix(wrap, "size:"), &elements) && elements > 0),
          "wrap", wrap, "give block, none, or size:ELEMENTS, e.g. size:1000000");
  Require(hybrid || RankPerStage() || replicas == 1, "replicas", replicas,
          "is for --strategy=hybrid, hybrid_grad_op, and pipeline with --ranks");
  Require(ranks % replicas == 0, "replicas", replicas,
          absl::StrCat("do not divide --ranks=", ranks));
  Require(backward_prefetch == "pre" || backward_prefetch == "post" || backward_prefetch == "none",
          "backward_prefetch", backward_prefetch, "give pre, post or none");
  Require(param_dtype.empty() || param_dtype == "bf16", "param_dtype", param_dtype,
          "give bf16, or nothing for float32; float16 wants the gradient scaler of --amp=fp16");
  Require(param_dtype.empty() || amp.empty(), "param_dtype", param_dtype,
          absl::StrCat("does not go with --amp=", amp, "; give one of them"));
  Require(!cpu_offload || strategy != "no_shard", "cpu_offload", "true",
          "has nothing to gather with --strategy=no_shard; use fsdp");
  Require(!deferred_init || !absl::StartsWith(checkpoint, "budget"), "deferred_init", "true",
          "leaves --checkpoint=budget nothing to measure; use --checkpoint=block");
  const auto fsdp_only = [&](bool is_default, absl::string_view flag, const absl::AlphaNum& value) {
    Require(is_default || HasFsdp(), flag, value,
            absl::StrCat("is for --strategy=fsdp and its like, and this is --strategy=", strategy));
  };
  fsdp_only(wrap == "block", "wrap", wrap);
  fsdp_only(reshard_ranks == 0, "reshard_ranks", reshard_ranks);
  fsdp_only(backward_prefetch == "pre", "backward_prefetch", backward_prefetch);
  fsdp_only(forward_prefetch, "forward_prefetch", forward_prefetch);
  fsdp_only(!cpu_offload, "cpu_offload", cpu_offload);
  fsdp_only(param_dtype.empty(), "param_dtype", param_dtype);
  fsdp_only(!deferred_init, "deferred_init", deferred_init);
  Require(reshard_ranks == 0 || strategy == "fsdp" || strategy == "hybrid", "reshard_ranks",
          reshard_ranks,
          absl::StrCat("is for parameters that are let go after forward, and --strategy=", strategy,
                       " keeps them; use fsdp or hybrid"));
  const int64_t sharing = ranks / replicas;
  Require(reshard_ranks == 0 ||
              (reshard_ranks >= 1 && reshard_ranks < sharing && sharing % reshard_ranks == 0),
          "reshard_ranks", reshard_ranks,
          absl::StrCat("give a proper divisor of the ", sharing,
                       " ranks that share parameters, or 0 for all of them"));
  Require(state_layout == "full" || state_layout == "sharded", "state", state_layout,
          "give full or sharded");
  const bool in_parts = strategy == "config" ? engine::ShardsGradients(EngineConfig())
                                             : HasFsdp() && strategy != "no_shard";
  Require(state_layout == "full" || in_parts, "state", state_layout,
          absl::StrCat("is for strategies that shard parameters or gradients (fsdp, fsdp_grad_op, "
                       "hybrid, hybrid_grad_op; ZeRO stages 2 and 3), and this is --strategy=",
                       strategy, "; use --state=full"));
}

void TrainConfig::ResolveStages() const {
  Require(stages >= 1 && stages <= 8, "stages", stages, "give 1 to 8");
  Require(
      stages == 1 || strategy == "model_parallel" || strategy == "pipeline" || strategy == "ddp",
      "stages", stages,
      absl::StrCat("is for --strategy=model_parallel, pipeline and ddp, and this is --strategy=",
                   strategy));
  Require(stages <= layers, "stages", stages,
          absl::StrCat("are more than the blocks to spread, --layers=", layers));
}

void TrainConfig::ResolvePipeline() const {
  const bool is_pipeline = strategy == "pipeline";
  const auto pipeline_only = [&](bool is_default, absl::string_view flag,
                                 const absl::AlphaNum& value) {
    Require(is_default || is_pipeline, flag, value,
            absl::StrCat("is for --strategy=pipeline, and this is --strategy=", strategy));
  };
  pipeline_only(schedule == "1f1b", "schedule", schedule);
  pipeline_only(stages_per_rank == 1, "stages_per_rank", stages_per_rank);
  Require(shards >= 1 && shards <= kMaximumRanks, "shards", shards,
          absl::StrCat("give a count of ranks, 1 to ", kMaximumRanks));
  Require(is_pipeline || shards == 1, "shards", shards,
          absl::StrCat("is for --strategy=pipeline, and this is --strategy=", strategy,
                       HasFsdp() ? ", whose ranks share all; see --replicas" : "; use fsdp"));
  if (!is_pipeline) return;
  Require(
      schedule == "gpipe" || schedule == "1f1b" || schedule == "interleaved" || schedule == "zb_h1",
      "schedule", schedule, "give gpipe, 1f1b, interleaved or zb_h1");
  const bool interleaved = schedule == "interleaved";
  Require(stages_per_rank >= 1, "stages_per_rank", stages_per_rank, "give a count >= 1");
  Require(interleaved == (stages_per_rank > 1), "stages_per_rank", stages_per_rank,
          interleaved
              ? "give 2 or more with --schedule=interleaved"
              : absl::StrCat("is for --schedule=interleaved, and this is --schedule=", schedule));
  Require(stages % stages_per_rank == 0, "stages_per_rank", stages_per_rank,
          absl::StrCat("do not divide --stages=", stages));
  Require(
      !interleaved || PipelineRanks() > 1, "stages", stages,
      absl::StrCat("are all on one rank, and an interleaved pipeline has several; use --stages=",
                   2 * stages_per_rank, " or more"));
  Require(!interleaved || micro_batches % PipelineRanks() == 0, "micro_batches", micro_batches,
          absl::StrCat("are no multiple of the ", PipelineRanks(),
                       " ranks of an interleaved pipeline; use --schedule=1f1b or zb_h1"));
  const int64_t wanted = PipelineRanks() * replicas * shards;
  Require(ranks == wanted || (ranks == 1 && replicas * shards == 1), "ranks", ranks,
          absl::StrCat("give --ranks=", wanted, ", one for each of ", PipelineRanks(),
                       " parts of --stages x --replicas=", replicas, " x --shards=", shards,
                       replicas * shards == 1 ? ", or --ranks=1 for threads of one process" : ""));
  Require(shards == 1 || schedule != "zb_h1", "shards", shards,
          "do not go with --schedule=zb_h1: a block's parameters are let go between the two halves "
          "of its backward; use --schedule=1f1b or --replicas");
  Require(!offload_activations, "offload_activations", "true",
          "is of one thread, and a pipeline has several; use --checkpoint=block");
  Require(!RankPerStage() || !absl::StartsWith(checkpoint, "budget"), "checkpoint", checkpoint,
          "has no whole model to measure where each rank has a part; use --checkpoint=block");
}

engine::DeepSpeedConfig TrainConfig::EngineConfig() const {
  const optim::AdamWOptions adamw = AdamWSettings(lr);
  engine::DeepSpeedAutos autos;
  autos.lr = lr;
  autos.beta1 = adamw.beta1;
  autos.beta2 = adamw.beta2;
  autos.eps = adamw.epsilon;
  autos.weight_decay = adamw.weight_decay;
  autos.gradient_clipping = kClipNorm;
  autos.train_batch_size = batch;
  autos.gradient_accumulation_steps = micro_batches;
  autos.warmup_num_steps = WarmupSteps();
  autos.total_num_steps = steps;
  autos.hidden_size = width;
  autos.fp16_enabled = false;
  autos.bf16_enabled = false;
  autos.gather_16bit_weights_on_model_save = false;
  try {
    engine::DeepSpeedConfig settings = engine::ParseDeepSpeedConfig(config_text, ranks, autos);
    engine::CheckSupported(settings);
    return settings;
  } catch (const Error& error) {
    throw error.WithContext(config);
  }
}

// The file's batch is the step's.
void TrainConfig::ResolveEngine() {
  Require(strategy != "config" || !config.empty(), "strategy", strategy,
          "wants a file: give --config=FILE instead");
  if (config.empty()) return;
  strategy = "config";
  Require(amp.empty(), "amp", amp, "is for the file of --config to say (bf16, fp16)");
  Require(accumulate == 1, "accumulate", accumulate,
          "is for the file of --config to say (gradient_accumulation_steps)");
  TakeFileSettings();
}

void TrainConfig::TakeFileSettings() {
  if (config_text.empty()) return;
  const engine::DeepSpeedConfig settings = EngineConfig();
  batch = settings.train_batch_size;
  micro_batches = settings.gradient_accumulation_steps;
  lr = PeakRate(settings, lr).lr;
}

void TrainConfig::ResolveSizes() {
  Require(model == "nano" || model == "mini" || model == "small", "model", model,
          "give nano, mini or small");
  const models::Gpt2Config preset = models::Gpt2Preset(model);
  const auto resolve = [](const char* flag, int64_t& size, int64_t from_preset) {
    Require(size >= 0, flag, size, "give a size >= 1, or leave it to --model");
    if (size == 0) size = from_preset;
  };
  resolve("layers", layers, preset.layers);
  resolve("heads", heads, preset.heads);
  resolve("width", width, preset.width);
  resolve("block", block, preset.block);
  Require(width % heads == 0, "width", width,
          absl::StrCat("must be a multiple of --heads=", heads));
}

void TrainConfig::CheckRanks() const {
  Require(strategy == "config" || strategy == "single" || HasDdp() || HasFsdp() ||
              strategy == "dp" || strategy == "model_parallel" || strategy == "pipeline",
          "strategy", strategy,
          "give single, ddp, dp, model_parallel, pipeline, zero1, zero2, zero3, fsdp, "
          "fsdp_grad_op, hybrid, "
          "hybrid_grad_op or no_shard");
  Require(ranks >= 1 && ranks <= kMaximumRanks, "ranks", ranks,
          absl::StrCat("give 1 to ", kMaximumRanks));
  Require(replicas >= 1 && replicas <= kMaximumRanks, "replicas", replicas,
          absl::StrCat("give a count of groups of ranks, 1 to ", kMaximumRanks));
  Require(HasDdp() || HasFsdp() || strategy == "config" || strategy == "pipeline" || ranks == 1,
          "strategy", strategy,
          absl::StrCat("runs on one rank, but --ranks=", ranks, "; use --strategy=ddp",
                       strategy == "model_parallel" ? absl::StrCat(" --stages=", stages) : ""));
  Require(devices >= 1 && devices <= 8, "devices", devices, "give 1 to 8");
  Require(strategy == "dp" || devices == 1, "devices", devices,
          "is for --strategy=dp; a rank has one, or --stages");
}

void TrainConfig::CheckBatch() const {
  Require(batch >= 1 && batch <= kMaximumCount, "batch", batch,
          absl::StrCat("give a number of rows, 1 to ", kMaximumCount));
  const int64_t parts = DataRanks();
  const absl::string_view parts_flag = !RankPerStage() ? "ranks"
                                       : shards == 1   ? "replicas"
                                       : replicas == 1 ? "shards"
                                                       : "replicas x --shards";
  Require(parts <= batch, parts_flag, parts,
          absl::StrCat("are more than the rows of a step; use --batch=", parts, " or more"));
  Require(batch % parts == 0, "batch", batch,
          absl::StrCat("rows do not split evenly over --", parts_flag, "=", parts,
                       "; use --batch=", (batch / parts + 1) * parts));
  Require(micro_batches >= 1 && micro_batches <= kMaximumCount, "micro_batches", micro_batches,
          absl::StrCat("give a count, 1 to ", kMaximumCount));
  Require(
      strategy != "pipeline" || micro_batches <= batch / parts, "micro_batches", micro_batches,
      absl::StrCat("are more than the ", batch / parts, " rows of a step; ",
                   resume.empty() ? absl::StrCat("use --batch=", micro_batches * parts, " or more")
                                  : "go on with fewer --replicas or --shards"));
  Require(strategy == "pipeline" || batch / parts % micro_batches == 0, "micro_batches",
          micro_batches,
          absl::StrCat("do not split the ", batch / parts, " rows of a rank evenly; ",
                       resume.empty()
                           ? absl::StrCat("use --batch=", ((batch / parts / micro_batches) + 1) *
                                                              micro_batches * parts)
                           : "go on with --strategy=pipeline, which takes uneven ones, or with "
                             "other --ranks"));
}

void TrainConfig::CheckReduction() const {
  RequireParses("comm_hook", comm_hook, &strategies::ParseCommunicationHook);
  Require(bucket_cap_mb >= 1 && bucket_cap_mb <= kMaximumBucketMib, "bucket_cap_mb", bucket_cap_mb,
          absl::StrCat("give MiB, 1 to ", kMaximumBucketMib));
  Require(StepsBeforeCompression() < steps, "comm_hook", comm_hook,
          absl::StrCat("averages the first ", StepsBeforeCompression(),
                       " steps in full, and --steps=", steps,
                       " has no other; give powersgd:RANK:START with a smaller START"));
  Require(!static_graph || !find_unused_parameters, "static_graph", static_graph,
          "does not go with --find_unused_parameters; it learns the unused ones by itself");
  const auto ddp_only = [&](bool is_default, absl::string_view flag, const absl::AlphaNum& value) {
    Require(is_default || HasDdp(), flag, value,
            absl::StrCat("is for --strategy=ddp and zero1, and this is --strategy=", strategy));
  };
  ddp_only(bucket_cap_mb == 25, "bucket_cap_mb", bucket_cap_mb);
  ddp_only(!static_graph, "static_graph", static_graph);
  ddp_only(!find_unused_parameters, "find_unused_parameters", find_unused_parameters);
  ddp_only(!gradient_as_bucket_view, "gradient_as_bucket_view", gradient_as_bucket_view);
  ddp_only(comm_hook == "none", "comm_hook", comm_hook);
  ddp_only(local_sgd_period == 0, "local_sgd_period", local_sgd_period);
  ddp_only(staleness == 0, "staleness", staleness);
  Require(strategy != "zero1" || comm_hook != "noop", "comm_hook", comm_hook,
          "leaves each rank its own gradients, and --strategy=zero1 has each update a part; use "
          "--strategy=ddp");
  Require(staleness >= 0 && staleness <= 16, "staleness", staleness, "give 0 (none) to 16 steps");
  Require(staleness == 0 || (!static_graph && !gradient_as_bucket_view && local_sgd_period == 0 &&
                             (comm_hook == "none" || comm_hook == "noop")),
          "staleness", staleness,
          "does not go with --static_graph, --gradient_as_bucket_view, --local_sgd_period, or a "
          "--comm_hook other than noop");
  Require(staleness == 0 || !absl::EndsWith(amp, "fp16"), "staleness", staleness,
          "does not go with a gradient scaler, whose scale changes between steps; use --amp=bf16");
}

void TrainConfig::CheckLocalSgd() const {
  Require(local_sgd_period >= 0, "local_sgd_period", local_sgd_period,
          "give a number of steps >= 1, or 0 for averages of gradients in every step");
  const auto of_gradients = [&](bool is_default, absl::string_view flag,
                                const absl::AlphaNum& value) {
    Require(is_default || local_sgd_period == 0, flag, value,
            absl::StrCat("is for averages of gradients, and --local_sgd_period=", local_sgd_period,
                         " averages parameters instead; leave one of the two out"));
  };
  of_gradients(bucket_cap_mb == 25, "bucket_cap_mb", bucket_cap_mb);
  of_gradients(!static_graph, "static_graph", static_graph);
  of_gradients(!find_unused_parameters, "find_unused_parameters", find_unused_parameters);
  of_gradients(comm_hook == "none", "comm_hook", comm_hook);
  Require(strategy != "zero1" || local_sgd_period == 0, "local_sgd_period", local_sgd_period,
          "lets ranks differ between averages, and --strategy=zero1 has each update a part; use "
          "--strategy=ddp");
}

void TrainConfig::Resolve() {
  // The names of ZeRO's stages.
  if (strategy == "zero2") strategy = "fsdp_grad_op";
  if (strategy == "zero3") strategy = "fsdp";
  ResolveSizes();
  ResolveEngine();
  CheckRanks();
  ResolveStages();
  ResolvePipeline();
  Require(strategy != "dp" || !offload_activations, "offload_activations", "true",
          "makes the devices of --strategy=dp wait for each other; use --strategy=ddp");
  Require(threads_per_rank >= 0, "threads_per_rank", threads_per_rank,
          "give a count >= 1, or 0 for the processors divided by the ranks");
  Require(steps >= 1, "steps", steps, "give a count >= 1");
  CheckBatch();
  Require(std::isfinite(lr) && lr > 0, "lr", lr, "give a learning rate > 0");
  Require(seed >= 0, "seed", seed, "give a number >= 0");
  RequireParses("amp", amp, &amp::ParseAutocast);
  RequireParses("checkpoint", checkpoint, &checkpoint::ParseCheckpointSetting);
  Require(accumulate >= 1 && accumulate <= kMaximumCount, "accumulate", accumulate,
          absl::StrCat("give a number of batches, 1 to ", kMaximumCount));
  CheckReduction();
  CheckLocalSgd();
  ResolveSharding();
  Require(save_every >= 0, "save_every", save_every,
          "give a number of steps, or 0 for only at the end");
  Require(keep >= 1, "keep", keep, "give a number of states >= 1");
  Require(profile_step >= 0 && profile_step <= steps, "profile_step", profile_step,
          absl::StrCat("give a step of the run, 1 to ", steps, ", or 0 for none"));
}

models::Gpt2Config TrainConfig::ModelConfig() const {
  models::Gpt2Config config;
  config.layers = layers;
  config.heads = heads;
  config.width = width;
  config.block = block;
  config.vocabulary = 256;
  return config;
}

void TrainConfig::Save(state::TrainingState& state) const {
  VisitFields(*this, StateWriter{state});
}

TrainConfig TrainConfig::FromState(const state::TrainingState& state) {
  TrainConfig config;
  config.model = state.Text(StateReader::Key("model"));  // there since the first version
  VisitFields(config, StateReader{state});
  return config;
}

std::string TrainConfig::Serialize() const {
  JsonWriter writer;
  VisitFields(*this, writer);
  writer("profile_step", profile_step);
  writer("backend", backend);
  writer("flight_recorder", flight_recorder);
  return writer.json.dump();
}

TrainConfig TrainConfig::Deserialize(absl::string_view text) {
  const auto json = nlohmann::ordered_json::parse(text.begin(), text.end(), nullptr,
                                                  /*allow_exceptions=*/false);
  if (!json.is_object()) throw InternalError("TrainConfig: no configuration for this rank");
  TrainConfig config;
  VisitFields(config, JsonReader{json});
  JsonReader{json}("profile_step", config.profile_step);
  JsonReader{json}("backend", config.backend);
  JsonReader{json}("flight_recorder", config.flight_recorder);
  return config;
}

void CheckSameSharding(const TrainConfig& saved, const TrainConfig& asked,
                       const std::string& path) {
  const auto layout = [](const TrainConfig& config) {
    if (!config.config.empty()) return absl::StrCat("--ranks=", config.ranks, " --config");
    std::string text = absl::StrCat("--ranks=", config.ranks, " --wrap=", config.wrap);
    if (config.replicas > 1) absl::StrAppend(&text, " --replicas=", config.replicas);
    return text;
  };
  const bool in_parts = asked.HasFsdp() || !asked.config.empty();
  if (in_parts && layout(saved) == layout(asked)) return;
  throw InvalidArgumentError(absl::StrCat(
      "--resume: '", path, "' is in parts (--state=sharded), of --strategy=", saved.strategy, " ",
      layout(saved), ", and this run is --strategy=", asked.strategy, " ", layout(asked),
      "; resume it as it was with --state=full, which writes the same state whole before it goes "
      "on, and resume that on any ranks by any strategy"));
}

void CheckResumable(const TrainConfig& saved, const TrainConfig& asked,
                    const std::vector<std::string>& given) {
  const auto check = [&](const char* flag, const auto& before, const auto& now) {
    if (std::find(given.begin(), given.end(), flag) == given.end() || before == now) return;
    throw InvalidArgumentError(absl::StrCat("--", flag, "=", now,
                                            ": the state to resume was made "
                                            "with ",
                                            before,
                                            "; leave the flag out, or start anew "
                                            "without --resume"));
  };
  check("model", saved.model, asked.model);
  check("layers", saved.layers, asked.layers);
  check("heads", saved.heads, asked.heads);
  check("width", saved.width, asked.width);
  check("block", saved.block, asked.block);
  check("batch", saved.batch, asked.batch);
  check("micro_batches", saved.micro_batches, asked.micro_batches);
  check("accumulate", saved.accumulate, asked.accumulate);
  check("lr", saved.lr, asked.lr);
  check("seed", saved.seed, asked.seed);
  check("init_from", saved.init_from, asked.init_from);
}

void CheckFlagsCount(const TrainConfig& resolved, const TrainConfig& asked,
                     const std::vector<std::string>& given) {
  if (resolved.config.empty()) return;
  const auto check = [&](const char* flag, const auto& wanted, const auto& is,
                         absl::string_view key) {
    if (std::find(given.begin(), given.end(), flag) == given.end() || wanted == is) return;
    throw InvalidArgumentError(absl::StrCat("--", flag, "=", wanted, ": --config=", resolved.config,
                                            " makes it ", is, "; leave the flag out, or write \"",
                                            key, "\": \"auto\" in the file to use it"));
  };
  check("batch", asked.batch, resolved.batch, "train_batch_size");
  check("micro_batches", asked.micro_batches, resolved.micro_batches,
        "gradient_accumulation_steps");
  check("lr", asked.lr, resolved.lr, PeakRate(resolved.EngineConfig(), resolved.lr).key);
}

void CheckFileResumable(const TrainConfig& saved, const TrainConfig& resolved) {
  if (resolved.config.empty()) return;
  const auto check = [&](const char* what, const auto& before, const auto& now) {
    if (before == now) return;
    throw InvalidArgumentError(absl::StrCat(
        "--config=", resolved.config, ": makes ", what, " ", now, " on --ranks=", resolved.ranks,
        ", and the state to resume was made with ", before, " on ", saved.ranks,
        "; change the file, or start anew without --resume"));
  };
  check("the rows of a step", saved.batch, resolved.batch);
  check("the learning rate", saved.lr, resolved.lr);
  // On other ranks the same rows are divided in another way.
  if (saved.ranks == resolved.ranks) {
    check("the micro-batches of a step", saved.micro_batches, resolved.micro_batches);
  }
}

}  // namespace lockstep::examples
