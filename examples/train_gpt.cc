// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Trains a byte-level GPT on text, on several ranks of this machine, or as one of the ranks that
// //tools:launch, torchrun, Slurm, Open MPI or Kubernetes has started (docs/launch.md).
//
//   ./bazelw run //examples:train_gpt
//   ./bazelw run //examples:train_gpt -- --data=book.txt --ranks=4 --batch=16 --steps=500
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "glog/logging.h"
#include "lockstep/base/caller_path.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/byte_strings.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/data/byte_text.h"
#include "lockstep/examples/find_state.h"
#include "lockstep/examples/initial_model.h"
#include "lockstep/examples/stop_signal.h"
#include "lockstep/examples/train_config.h"
#include "lockstep/examples/trainer.h"
#include "lockstep/state/file_io.h"
#include "lockstep/state/training_state.h"
#include "lockstep/tensor/thread_state.h"

ABSL_FLAG(std::string, data, "/usr/include/c++",
          "Text to learn: a file, or a folder that is read recursively.");
ABSL_FLAG(std::vector<std::string>, extensions, {},
          "With a folder: only files whose names end in one of these, e.g. .h,.cc. Empty: all.");
ABSL_FLAG(
    std::string, strategy, "ddp",
    "single (one rank), ddp (DistributedDataParallel), dp (DataParallel: one process, several "
    "devices), model_parallel (one rank with its blocks spread over --stages devices), pipeline "
    "(--stages that work on --micro_batches at a time, as threads or ranks), zero1 (ddp "
    "with each rank keeping a part of the optimizer's state), fsdp or zero3 "
    "(FullyShardedDataParallel: of parameters, gradients and state), fsdp_grad_op or zero2 (of "
    "gradients and state), hybrid and hybrid_grad_op (within each of --replicas) or no_shard.");
ABSL_FLAG(int64_t, ranks, 0,
          "Processes to train on. 0: 1 for single, dp, model_parallel and pipeline, 2 otherwise, "
          "or those that a launcher started. A pipeline has one for each stage, or 1: threads.");
ABSL_FLAG(
    std::string, backend, "",
    "How ranks exchange data: shm (on one host) or gloo (also between hosts). Empty: gloo where "
    "a launcher's ranks are on several hosts, else shm.");
ABSL_FLAG(int64_t, devices, 0, "Devices of dp, a thread each. 0: 2 for dp, 1 otherwise.");
ABSL_FLAG(int64_t, stages, 0,
          "model_parallel and ddp: devices that each rank's blocks are spread over, cpu:0 and on. "
          "pipeline: parts of the model. 0: 2 for model_parallel and pipeline (interleaved: 4), 1 "
          "otherwise.");
ABSL_FLAG(std::string, schedule, "1f1b",
          "pipeline: gpipe, 1f1b, interleaved (several stages a rank) or zb_h1 (zero bubble: "
          "gradients of weights where a rank would wait).");
ABSL_FLAG(int64_t, stages_per_rank, 0,
          "pipeline: stages that a rank has, interleaved. 0: 2 for interleaved, 1 otherwise.");
ABSL_FLAG(std::string, model, "nano", "nano, mini or small.");
ABSL_FLAG(int64_t, layers, 0, "Transformer blocks. 0: the model's.");
ABSL_FLAG(int64_t, heads, 0, "Attention heads. 0: the model's.");
ABSL_FLAG(int64_t, width, 0, "Channels. 0: the model's.");
ABSL_FLAG(int64_t, block, 0, "Bytes a row. 0: the model's.");
ABSL_FLAG(int64_t, steps, 2200, "Optimizer steps in all, those before a resume included.");
ABSL_FLAG(int64_t, batch, 12, "Rows of the whole step, split over the ranks.");
ABSL_FLAG(int64_t, micro_batches, 0,
          "Forward and backward passes that each rank splits its rows of a step into: less memory "
          "for activations, the same gradient; a pipeline's stages work on several at a time. 0: 4 "
          "for pipeline, 1 otherwise.");
ABSL_FLAG(std::string, amp, "",
          "Mixed precision: bf16 or fp16 (with a gradient scaler), or pure_bf16 or pure_fp16 with "
          "the residual stream in 16 bits too. Empty: float32.");
ABSL_FLAG(std::string, checkpoint, "none",
          "Activation checkpointing: none, block (recompute each block), selective (recompute all "
          "but contractions), or budget:SIZE (what fits best, e.g. budget:64MiB a rank).");
ABSL_FLAG(bool, offload_activations, false,
          "Keep activations on the host device between forward and backward.");
ABSL_FLAG(int64_t, accumulate, 1,
          "Batches of --batch rows whose gradients a step adds up before they are averaged.");
ABSL_FLAG(int64_t, bucket_cap_mb, 25, "ddp: MiB of gradients that are averaged at once.");
ABSL_FLAG(bool, static_graph, false,
          "ddp: every backward is as the first one, which is reduced at its end.");
ABSL_FLAG(bool, find_unused_parameters, false,
          "ddp: allow parameters that a backward does not reach.");
ABSL_FLAG(bool, gradient_as_bucket_view, false,
          "ddp: gradients are views of the buckets, which saves their size once.");
ABSL_FLAG(std::string, comm_hook, "none",
          "ddp: how gradients travel: none (as they are), fp16, bf16, powersgd[:RANK[:START]], or "
          "noop (not at all: for measuring).");
ABSL_FLAG(int64_t, local_sgd_period, 0,
          "ddp: average the parameters after every this many steps, and before validations and "
          "states, instead of the gradients in each. 0: gradients.");
ABSL_FLAG(
    int64_t, staleness, 0,
    "ddp: step by the averages of this many steps ago, which travel while later steps compute.");
ABSL_FLAG(std::string, wrap, "block",
          "fsdp: what is gathered at once: block (each transformer block), size:ELEMENTS (modules "
          "of at least so many), or none (the model).");
ABSL_FLAG(int64_t, replicas, 0,
          "hybrid and pipeline: groups of ranks that each have the whole model. 0: 2 for hybrid, 1 "
          "otherwise.");
ABSL_FLAG(int64_t, shards, 1,
          "pipeline: ranks that share each stage's parameters, gradients and optimizer state, and "
          "divide the rows of a replica (FullyShardedDataParallel in each stage).");
ABSL_FLAG(int64_t, reshard_ranks, 0,
          "fsdp: neighbouring ranks that keep a whole between forward and backward. 0: all.");
ABSL_FLAG(
    std::string, backward_prefetch, "pre",
    "fsdp: when the next block's parameters are asked for in backward: pre (before this one's "
    "gradients), post (after them) or none.");
ABSL_FLAG(bool, forward_prefetch, true, "fsdp: ask for the next block's in forward, too.");
ABSL_FLAG(bool, cpu_offload, false,
          "fsdp: keep parameters, gradients and optimizer state on the host device.");
ABSL_FLAG(std::string, param_dtype, "",
          "fsdp: gather and compute in bf16, step and reduce in float32. Empty: float32.");
ABSL_FLAG(bool, deferred_init, false,
          "fsdp: make parameters shard by shard, for models that no rank can hold.");
ABSL_FLAG(std::string, config, "",
          "A ds_config.json in DeepSpeed's vocabulary that says how to train: ZeRO stage, offload, "
          "precision, batch, optimizer, schedule. In place of --strategy; --batch, --micro_batches "
          "and --lr count where it says \"auto\".");
ABSL_FLAG(std::string, init_from, "",
          "Begin with the weights of a model instead of random ones: a folder of Hugging Face's "
          "GPT-2 (config.json and model.safetensors, or its index and parts) over bytes, whose "
          "sizes are taken, or a model.safetensors of ours. A run that is resumed goes on from its "
          "state.");
ABSL_FLAG(double, lr, 2e-3, "Peak learning rate.");
ABSL_FLAG(int64_t, seed, 0, "Seed of weights, data order and sampling.");
ABSL_FLAG(std::string, out, "",
          "Folder for training states. Empty: train_gpt_out/run-N, N the first that is free.");
ABSL_FLAG(std::string, resume, "",
          "Go on from a state: its folder, a run's folder, 'latest' (the newest good state in "
          "--out, or in train_gpt_out), or 'auto' (the newest good one in --out; a new run where "
          "there is none yet, so that a job that is restarted keeps its command).");
ABSL_FLAG(std::string, state, "full",
          "fsdp: full (one file, as of one rank alone, that any ranks and any strategy resume) or "
          "sharded (each rank writes its part, for the same ranks and units).");
ABSL_FLAG(int64_t, save_every, 500, "Steps between states. 0: only at the end.");
ABSL_FLAG(int64_t, keep, 3, "States to keep.");
ABSL_FLAG(int64_t, profile_step, 0,
          "Record this step: its table of kernels is printed, and each rank writes a trace for "
          "Perfetto beside the states. 0: none.");
ABSL_FLAG(std::string, flight_recorder, "",
          "Folder where each rank writes its last collectives when the ranks lose each other, for "
          "//tools:flight_recorder; under a launcher attempt-N in it. Empty: the launcher's "
          "--log_dir, or nowhere.");
ABSL_FLAG(int64_t, threads_per_rank, 0, "Threads an op may use. 0: processors / ranks.");

namespace lockstep::examples {
namespace {

constexpr const char* kFlagNames[] = {"data",
                                      "extensions",
                                      "strategy",
                                      "ranks",
                                      "backend",
                                      "devices",
                                      "stages",
                                      "schedule",
                                      "stages_per_rank",
                                      "model",
                                      "layers",
                                      "heads",
                                      "width",
                                      "block",
                                      "steps",
                                      "batch",
                                      "lr",
                                      "seed",
                                      "micro_batches",
                                      "amp",
                                      "checkpoint",
                                      "offload_activations",
                                      "accumulate",
                                      "bucket_cap_mb",
                                      "static_graph",
                                      "find_unused_parameters",
                                      "gradient_as_bucket_view",
                                      "comm_hook",
                                      "local_sgd_period",
                                      "staleness",
                                      "wrap",
                                      "replicas",
                                      "shards",
                                      "reshard_ranks",
                                      "backward_prefetch",
                                      "forward_prefetch",
                                      "cpu_offload",
                                      "param_dtype",
                                      "deferred_init",
                                      "config",
                                      "init_from",
                                      "state",
                                      "out",
                                      "resume",
                                      "save_every",
                                      "keep",
                                      "threads_per_rank",
                                      "profile_step",
                                      "flight_recorder"};
constexpr char kDefaultRoot[] = "train_gpt_out";
constexpr int64_t kMaximumConfigBytes = 16 << 20;

void PrintHelp() {
  std::printf(
      "Trains a byte-level GPT on text, on several ranks of this machine, or as one of the ranks\n"
      "that a launcher has started (docs/launch.md).\n\n"
      "  ./bazelw run //examples:train_gpt -- [flags]\n\n");
  for (const char* name : kFlagNames) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    const std::string value = flag->DefaultValue();
    std::printf("  --%s=%s\n      %s\n", name, value.empty() ? "\"\"" : value.c_str(),
                flag->Help().c_str());
  }
}

// Flags that are on the command line, as --name or --noname, so that a default can be told from a
// wish.
std::vector<std::string> GivenFlags(int argc, char** argv) {
  std::vector<std::string> given;
  for (const char* name : kFlagNames) {
    for (int i = 1; i < argc; ++i) {
      absl::string_view argument = argv[i];
      if (!absl::ConsumePrefix(&argument, "--") && !absl::ConsumePrefix(&argument, "-")) continue;
      argument = argument.substr(0, argument.find('='));
      if (argument == name || argument == absl::StrCat("no", name)) given.push_back(name);
    }
  }
  return given;
}

bool Given(const std::vector<std::string>& given, absl::string_view flag) {
  for (const std::string& name : given) {
    if (name == flag) return true;
  }
  return false;
}

bool RunsInOneProcess(absl::string_view strategy) {
  return strategy == "single" || strategy == "dp" || strategy == "model_parallel" ||
         strategy == "pipeline";
}

// --stages_per_rank, or what it is by default.
int64_t StagesPerRank(absl::string_view strategy, absl::string_view schedule) {
  const int64_t given = absl::GetFlag(FLAGS_stages_per_rank);
  if (given != 0) return given;
  return strategy == "pipeline" && schedule == "interleaved" ? 2 : 1;
}

TrainConfig ConfigFromFlags() {
  TrainConfig config;
  config.data = CallerPath(absl::GetFlag(FLAGS_data));
  config.extensions = absl::GetFlag(FLAGS_extensions);
  config.model = absl::GetFlag(FLAGS_model);
  config.layers = absl::GetFlag(FLAGS_layers);
  config.heads = absl::GetFlag(FLAGS_heads);
  config.width = absl::GetFlag(FLAGS_width);
  config.block = absl::GetFlag(FLAGS_block);
  config.strategy = absl::GetFlag(FLAGS_strategy);
  config.backend = absl::GetFlag(FLAGS_backend);
  config.ranks = absl::GetFlag(FLAGS_ranks);
  if (config.ranks == 0) config.ranks = RunsInOneProcess(config.strategy) ? 1 : 2;
  config.devices = absl::GetFlag(FLAGS_devices);
  if (config.devices == 0) config.devices = config.strategy == "dp" ? 2 : 1;
  config.stages = absl::GetFlag(FLAGS_stages);
  config.schedule = absl::GetFlag(FLAGS_schedule);
  const bool pipeline = config.strategy == "pipeline";
  const bool interleaved = pipeline && config.schedule == "interleaved";
  if (config.stages == 0) {
    config.stages = interleaved ? 4 : pipeline || config.strategy == "model_parallel" ? 2 : 1;
  }
  config.stages_per_rank = StagesPerRank(config.strategy, config.schedule);
  config.threads_per_rank = absl::GetFlag(FLAGS_threads_per_rank);
  config.steps = absl::GetFlag(FLAGS_steps);
  config.batch = absl::GetFlag(FLAGS_batch);
  config.micro_batches = absl::GetFlag(FLAGS_micro_batches);
  if (config.micro_batches == 0) config.micro_batches = pipeline ? 4 : 1;
  config.amp = absl::GetFlag(FLAGS_amp);
  config.checkpoint = absl::GetFlag(FLAGS_checkpoint);
  config.offload_activations = absl::GetFlag(FLAGS_offload_activations);
  config.accumulate = absl::GetFlag(FLAGS_accumulate);
  config.bucket_cap_mb = absl::GetFlag(FLAGS_bucket_cap_mb);
  config.static_graph = absl::GetFlag(FLAGS_static_graph);
  config.find_unused_parameters = absl::GetFlag(FLAGS_find_unused_parameters);
  config.gradient_as_bucket_view = absl::GetFlag(FLAGS_gradient_as_bucket_view);
  config.comm_hook = absl::GetFlag(FLAGS_comm_hook);
  config.local_sgd_period = absl::GetFlag(FLAGS_local_sgd_period);
  config.staleness = absl::GetFlag(FLAGS_staleness);
  config.wrap = absl::GetFlag(FLAGS_wrap);
  config.replicas = absl::GetFlag(FLAGS_replicas);
  if (config.replicas == 0) config.replicas = absl::StartsWith(config.strategy, "hybrid") ? 2 : 1;
  config.shards = absl::GetFlag(FLAGS_shards);
  config.reshard_ranks = absl::GetFlag(FLAGS_reshard_ranks);
  config.backward_prefetch = absl::GetFlag(FLAGS_backward_prefetch);
  config.forward_prefetch = absl::GetFlag(FLAGS_forward_prefetch);
  config.cpu_offload = absl::GetFlag(FLAGS_cpu_offload);
  config.param_dtype = absl::GetFlag(FLAGS_param_dtype);
  config.deferred_init = absl::GetFlag(FLAGS_deferred_init);
  config.config = CallerPath(absl::GetFlag(FLAGS_config));
  config.init_from = CallerPath(absl::GetFlag(FLAGS_init_from));
  config.state_layout = absl::GetFlag(FLAGS_state);
  config.lr = absl::GetFlag(FLAGS_lr);
  config.seed = absl::GetFlag(FLAGS_seed);
  config.out = CallerPath(absl::GetFlag(FLAGS_out));
  config.save_every = absl::GetFlag(FLAGS_save_every);
  config.keep = absl::GetFlag(FLAGS_keep);
  config.profile_step = absl::GetFlag(FLAGS_profile_step);
  config.flight_recorder = CallerPath(absl::GetFlag(FLAGS_flight_recorder));
  return config;
}

// The first of train_gpt_out/run-1, run-2, ... that does not exist.
std::string FreeRunFolder() {
  for (int number = 1;; ++number) {
    const std::string folder = CallerPath(absl::StrCat(kDefaultRoot, "/run-", number));
    if (!std::filesystem::exists(folder)) return folder;
  }
}

// What a state was made with.
TrainConfig SavedConfig(const FoundState& found) {
  TrainConfig saved = TrainConfig::FromState(found.state);
  saved.TakeFileSettings();
  return saved;
}

// `saved`, with the flags that the user gives now.
TrainConfig MergeResumed(const FoundState& found, const TrainConfig& saved,
                         const TrainConfig& asked, const std::vector<std::string>& given) {
  TrainConfig config = saved;
  CheckResumable(saved, asked, given);
  const auto take = [&](const char* flag, auto TrainConfig::*field) {
    if (Given(given, flag)) config.*field = asked.*field;
  };
  take("data", &TrainConfig::data);
  take("extensions", &TrainConfig::extensions);
  take("strategy", &TrainConfig::strategy);
  take("ranks", &TrainConfig::ranks);
  const bool one_process = RunsInOneProcess(config.strategy);
  if (Given(given, "strategy") && !Given(given, "ranks") && one_process) config.ranks = 1;
  if (Given(given, "strategy") || Given(given, "devices")) config.devices = asked.devices;
  if (Given(given, "strategy") || Given(given, "stages")) config.stages = asked.stages;
  if (Given(given, "strategy") || Given(given, "schedule")) {
    config.schedule = asked.schedule;
  }
  if (Given(given, "strategy") || Given(given, "schedule") || Given(given, "stages_per_rank")) {
    config.stages_per_rank = StagesPerRank(config.strategy, config.schedule);
  }
  take("threads_per_rank", &TrainConfig::threads_per_rank);
  take("amp", &TrainConfig::amp);
  take("checkpoint", &TrainConfig::checkpoint);
  take("offload_activations", &TrainConfig::offload_activations);
  // How gradients are averaged and parameters sharded is no property of the state: another strategy
  // begins with its own.
  const bool other_strategy = config.strategy != saved.strategy || Given(given, "config");
  const auto take_averaging = [&](const char* flag, auto TrainConfig::*field) {
    if (Given(given, flag) || other_strategy) config.*field = asked.*field;
  };
  take_averaging("bucket_cap_mb", &TrainConfig::bucket_cap_mb);
  take_averaging("static_graph", &TrainConfig::static_graph);
  take_averaging("find_unused_parameters", &TrainConfig::find_unused_parameters);
  take_averaging("gradient_as_bucket_view", &TrainConfig::gradient_as_bucket_view);
  take_averaging("comm_hook", &TrainConfig::comm_hook);
  take_averaging("local_sgd_period", &TrainConfig::local_sgd_period);
  take_averaging("staleness", &TrainConfig::staleness);
  const auto take_sharding = [&](const char* flag, auto TrainConfig::*field) {
    if (Given(given, flag) || Given(given, "strategy")) config.*field = asked.*field;
  };
  take_sharding("wrap", &TrainConfig::wrap);
  take_sharding("replicas", &TrainConfig::replicas);
  take_sharding("shards", &TrainConfig::shards);
  take_sharding("reshard_ranks", &TrainConfig::reshard_ranks);
  take_sharding("backward_prefetch", &TrainConfig::backward_prefetch);
  take_sharding("forward_prefetch", &TrainConfig::forward_prefetch);
  take_sharding("cpu_offload", &TrainConfig::cpu_offload);
  take_sharding("param_dtype", &TrainConfig::param_dtype);
  take_sharding("deferred_init", &TrainConfig::deferred_init);
  take_sharding("config", &TrainConfig::config);
  if (config.config != saved.config || Given(given, "config")) config.config_text.clear();
  take_sharding("state", &TrainConfig::state_layout);
  take("steps", &TrainConfig::steps);
  take("save_every", &TrainConfig::save_every);
  take("keep", &TrainConfig::keep);
  config.profile_step = asked.profile_step;
  config.backend = asked.backend;
  config.flight_recorder = asked.flight_recorder;
  config.out =
      Given(given, "out") ? asked.out : std::filesystem::path(found.path).parent_path().string();
  config.resume = found.path;
  return config;
}

// Whether --resume=auto finds nothing to go on from.
bool StartsAnew(const std::string& resume, const std::string& out) {
  if (resume != "auto") return resume.empty();
  if (out.empty()) {
    throw InvalidArgumentError(
        "--resume=auto: give --out=FOLDER too, the run to go on with or to start");
  }
  return state::ListTrainingStates(out).empty();
}

FoundState Find(const std::string& resume, const std::string& out) {
  const bool by_name = resume == "latest" || resume == "auto";
  FoundState found = FindState(by_name ? "latest" : CallerPath(resume),
                               out.empty() ? CallerPath(kDefaultRoot) : out);
  for (const std::string& reason : found.skipped) {
    std::fprintf(stderr, "train_gpt: skipped a newer state: %s\n", reason.c_str());
  }
  return found;
}

// Hours of training must not end with nowhere to be kept. Tried in the folder, or in the nearest
// one above it that is there: none is made for a run that does not begin.
void CheckOutCanBeWritten(const std::string& out) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgumentError(absl::StrCat(
        "--out=", out, ": states cannot be written there: ", why, "; give another folder"));
  };
  std::error_code failure;
  std::filesystem::path there = out;
  while (there.has_relative_path() && !std::filesystem::exists(there, failure)) {
    // One that is not there is no failure; a name that is too long is.
    if (failure) refuse(failure.message());
    there = there.parent_path();
  }
  try {
    const state::AtomicFile probe((there / "probe").string());
  } catch (const Error& error) {
    refuse(error.message());
  }
}

// `launched`: the ranks that a launcher has started, or 0.
TrainConfig MakeConfig(const std::vector<std::string>& given, int launched) {
  const TrainConfig asked = ConfigFromFlags();
  TrainConfig config = asked;
  if (launched > 0 && Given(given, "ranks") && config.ranks != launched) {
    throw InvalidArgumentError(absl::StrCat("--ranks=", config.ranks, ": a launcher has started ",
                                            launched, " ranks: leave the flag out"));
  }
  const std::string resume = absl::GetFlag(FLAGS_resume);
  std::optional<TrainConfig> saved;
  bool in_parts = false;
  if (!StartsAnew(resume, config.out)) {
    const FoundState found = Find(resume, config.out);
    in_parts = found.sharded;
    saved = SavedConfig(found);
    config = MergeResumed(found, *saved, asked, given);
  } else if (config.out.empty()) {
    config.out = FreeRunFolder();
  } else if (!state::ListTrainingStates(config.out).empty()) {
    throw AlreadyExistsError(absl::StrCat("--out=", config.out,
                                          ": has training states already; go "
                                          "on with --resume=latest, or give another folder"));
  }
  if (launched > 0) config.ranks = launched;
  if (!config.config.empty() && Given(given, "strategy")) {
    throw InvalidArgumentError(
        absl::StrCat("--config=", config.config, ": says the strategy; leave --strategy out"));
  }
  // Read once: the ranks, and whoever resumes, have the text.
  if (!config.config.empty() && config.config_text.empty()) {
    config.config_text = state::ReadFile(config.config, kMaximumConfigBytes);
  }
  if (config.resume.empty() && !config.init_from.empty()) ResolveInitialModel(config, given);
  config.Resolve();
  CheckFlagsCount(config, asked, given);
  if (saved) CheckFileResumable(*saved, config);
  if (in_parts) CheckSameSharding(*saved, config, config.resume);
  if (!config.config.empty()) {
    for (const std::string& key : config.EngineConfig().ignored) {
      const bool recomputes = absl::StartsWith(key, "activation_checkpointing");
      std::fprintf(stderr, "train_gpt: --config: %s has no effect here%s\n", key.c_str(),
                   recomputes ? "; --checkpoint=block recomputes activations" : "");
    }
  }
  // Opened here once, so that a wrong path is one line and not one a rank.
  try {
    const auto text = data::ByteText::Open(config.data, {.extensions = config.extensions});
    data::ByteTextDataset(text, config.block, data::TextPart::kTraining);
    data::ByteTextDataset(text, config.block, data::TextPart::kValidation);
  } catch (const Error& error) {
    throw error.WithContext("--data");
  }
  CheckOutCanBeWritten(config.out);
  return config;
}

// Which attempt of its launcher (ours or torchrun) at the job this is, from 0.
int Attempt(const comm::Environment& environment) {
  const auto it = environment.find("TORCHELASTIC_RESTART_COUNT");
  int attempt = 0;
  return it != environment.end() && absl::SimpleAtoi(it->second, &attempt) ? attempt : 0;
}

// The ranks' recorders make the last folder only.
void MakeRecordFolder(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    throw NotFoundError(absl::StrCat("--flight_recorder=", absl::GetFlag(FLAGS_flight_recorder),
                                     ": cannot make ", folder, ": ", failure.message()));
  }
}

void RankMain(comm::RankContext& context) {
  // What all ranks have to say is said once.
  if (context.rank != 0) FLAGS_minloglevel = google::GLOG_ERROR;
  InstallStopSignal();
  const TrainConfig config = TrainConfig::Deserialize(context.argument);
  comm::ProcessGroupOptions options = context.group_options();
  if (!config.backend.empty()) options.backend = config.backend;
  options.flight_recorder.folder = config.flight_recorder;
  Train(config, comm::InitProcessGroup(options));
}

// The newest of train_gpt_out/run-1, run-2, ...; "" where there is none.
std::string LastRunFolder() {
  std::string last;
  for (int number = 1;; ++number) {
    const std::string folder = CallerPath(absl::StrCat(kDefaultRoot, "/run-", number));
    if (!std::filesystem::exists(folder)) return last;
    last = folder;
  }
}

// A launcher starts a failed job's command again: one without --resume trains from the beginning.
void WarnOfLostTraining(const TrainConfig& config, int attempt) {
  if (attempt == 0 || !absl::GetFlag(FLAGS_resume).empty()) return;
  const bool named = !absl::GetFlag(FLAGS_out).empty();
  const std::string earlier = named ? "" : LastRunFolder();
  std::fprintf(stderr,
               "train_gpt: warning: restart %d begins from step 0 in %s%s: let the job's command "
               "say --resume=auto --out=%s, and restarts go on from the last state\n",
               attempt, config.out.c_str(),
               earlier.empty() ? "" : absl::StrCat(", the states in ", earlier, " unused").c_str(),
               earlier.empty() ? config.out.c_str() : earlier.c_str());
}

// A launcher reports the rank that ends first and has the others stop; the reason is rank 0's.
void LetRankZeroEndFirst() {
  const Deadline patience = Deadline::After(absl::Seconds(2));
  while (!StopRequested() && !patience.Expired()) poll(nullptr, 0, 10);
}

// Rank 0 makes it, and says why where it cannot.
TrainConfig AgreeOnConfig(comm::Communicator& world, const std::vector<std::string>& given,
                          int attempt) {
  constexpr char kMade = '+';
  std::optional<Error> failure;
  std::string text;
  if (world.rank() == 0) {
    try {
      const TrainConfig config = MakeConfig(given, world.size());
      WarnOfLostTraining(config, attempt);
      text = kMade + config.Serialize();
    } catch (const Error& error) {
      failure = error;
      text = "-" + error.message();
    }
  }
  text = comm::BroadcastBytes(world, text);
  if (failure) throw *failure;
  if (text.front() != kMade) {
    LetRankZeroEndFirst();
    throw AbortedError(absl::StrCat("rank 0 could not begin: ", text.substr(1)));
  }
  return TrainConfig::Deserialize(absl::string_view(text).substr(1));
}

// This process is one of the ranks.
void RunAsRank(const comm::Environment& environment, const std::vector<std::string>& given) {
  comm::ProcessGroupOptions options = comm::ProcessGroupOptionsFromEnvironment(environment);
  if (options.rank != 0) FLAGS_minloglevel = google::GLOG_ERROR;
  InstallStopSignal();
  options.backend = absl::GetFlag(FLAGS_backend);
  if (options.backend.empty()) {
    options.backend = options.local_world_size < options.world_size ? "gloo" : "shm";
  }
  if (!absl::GetFlag(FLAGS_flight_recorder).empty()) {
    options.flight_recorder.folder = CallerPath(absl::GetFlag(FLAGS_flight_recorder) +
                                                absl::StrCat("/attempt-", Attempt(environment)));
    MakeRecordFolder(options.flight_recorder.folder);
  }
  try {
    const std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(options);
    const TrainConfig config = AgreeOnConfig(*world, given, Attempt(environment));
    SetIntraOpThreads(config.threads_per_rank > 0 ? static_cast<int>(config.threads_per_rank)
                                                  : comm::ThreadsPerRank(options.local_world_size));
    Train(config, world);
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat("rank ", options.rank));
  }
}

int Run(int argc, char** argv, const comm::Environment& environment) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "--help" || argument == "-help" || argument == "-h") {
      PrintHelp();
      return 0;
    }
  }
  const std::vector<std::string> given = GivenFlags(argc, argv);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    throw InvalidArgumentError(absl::StrCat("unexpected argument '", rest[1],
                                            "'; flags are written --name=value, see --help"));
  }
  if (comm::StartedAsRank(environment)) {
    RunAsRank(environment, given);
    return 0;
  }
  const TrainConfig config = MakeConfig(given, /*launched=*/0);
  if (!config.flight_recorder.empty()) MakeRecordFolder(config.flight_recorder);
  comm::SpawnOptions options;
  options.argument = config.Serialize();
  options.threads_per_rank = static_cast<int>(config.threads_per_rank);
  comm::Spawn(static_cast<int>(config.ranks), &RankMain, options).ThrowIfFailed();
  return 0;
}

comm::Environment ReadEnvironment() {
  comm::Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    environment.insert(pair);
  }
  return environment;
}

}  // namespace

int Main(int argc, char** argv) { return Run(argc, argv, ReadEnvironment()); }

}  // namespace lockstep::examples

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;  // no files
  google::InitGoogleLogging(argv[0]);
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  try {
    return lockstep::examples::Main(argc, argv);
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "train_gpt: %s\n", error.message().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_gpt: %s\n", error.what());
  }
  return 1;
}
