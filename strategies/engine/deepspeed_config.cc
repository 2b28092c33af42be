// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/engine/deepspeed_config.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/engine/deepspeed_sections.h"
#include "lockstep/strategies/engine/json_section.h"
#include "lockstep/strategies/engine/json_tree.h"

namespace lockstep::engine {
namespace {

using Ignored = std::vector<std::string>;

constexpr int64_t kNoMaximum = std::numeric_limits<int64_t>::max();

// ---- Batch ----

// Empty when the key is absent, or "auto" without a value: the others may give it.
std::optional<int64_t> BatchKey(JsonSection& root, absl::string_view key,
                                std::optional<int64_t> automatic) {
  const JsonNode* node = root.Find(key);
  if (node == nullptr) return std::nullopt;
  const bool is_auto = node->kind == JsonNode::Kind::kString && node->text == "auto";
  if (is_auto && !automatic.has_value()) return std::nullopt;
  int64_t value = 0;
  root.Integer(key, &value, 1, kNoMaximum, AutoValue<int64_t>{"DeepSpeedAutos", automatic});
  return value;
}

int64_t Product(int64_t micro, int64_t accumulation, int64_t ranks) {
  int64_t product = 0;
  if (__builtin_mul_overflow(micro, accumulation, &product) ||
      __builtin_mul_overflow(product, ranks, &product)) {
    throw InvalidArgumentError(absl::StrCat("train_micro_batch_size_per_gpu ", micro,
                                            " * gradient_accumulation_steps ", accumulation, " * ",
                                            ranks, " ranks is beyond 2^63; lower one"));
  }
  return product;
}

// `total` over what is known of the product.
int64_t Share(int64_t total, absl::string_view name, int64_t known, int64_t ranks,
              absl::string_view wanted) {
  const int64_t product = Product(1, known, ranks);
  if (total % product != 0) {
    throw InvalidArgumentError(absl::StrCat(
        "train_batch_size ", total, " is not a multiple of ", name, " ", known, " * ", ranks,
        " ranks = ", product, ", so that there is no ", wanted, "; change one of them"));
  }
  return total / product;
}

struct Batch {
  std::optional<int64_t> train, micro, accumulation;
};

Batch ReadBatch(JsonSection& root, const DeepSpeedAutos& autos) {
  return {BatchKey(root, "train_batch_size", autos.train_batch_size),
          BatchKey(root, "train_micro_batch_size_per_gpu", autos.train_micro_batch_size_per_gpu),
          BatchKey(root, "gradient_accumulation_steps", autos.gradient_accumulation_steps)};
}

void ResolveBatch(const Batch& batch, DeepSpeedConfig& config) {
  const char *const micro_name = "train_micro_batch_size_per_gpu",
                    *const accumulation_name = "gradient_accumulation_steps";
  int64_t &micro = config.train_micro_batch_size_per_gpu,
          &accumulation = config.gradient_accumulation_steps;
  if (batch.micro.has_value()) {
    micro = *batch.micro;
    accumulation = batch.accumulation.value_or(1);
    if (!batch.accumulation.has_value() && batch.train.has_value()) {
      accumulation = Share(*batch.train, micro_name, micro, config.ranks, accumulation_name);
    }
  } else if (batch.train.has_value()) {
    accumulation = batch.accumulation.value_or(1);
    micro = Share(*batch.train, accumulation_name, accumulation, config.ranks, micro_name);
  } else {
    throw InvalidArgumentError(
        "neither train_batch_size nor train_micro_batch_size_per_gpu is known; write one of them, "
        "or give the program's in DeepSpeedAutos for \"auto\"");
  }
  const int64_t product = Product(micro, accumulation, config.ranks);
  config.train_batch_size = batch.train.value_or(product);
  if (config.train_batch_size != product) {
    throw InvalidArgumentError(
        absl::StrCat("train_batch_size ", config.train_batch_size, " is not ", micro_name, " ",
                     micro, " * ", accumulation_name, " ", accumulation, " * ", config.ranks,
                     " ranks = ", product, "; change one of them, or leave one out"));
  }
}

// ---- Sections ----

void ReadPrecision(JsonSection& root, const DeepSpeedAutos& autos, DeepSpeedConfig& config) {
  JsonSection fp16(root.Find("fp16"), "fp16", &config.ignored);
  DeepSpeedFp16& f = config.fp16;
  fp16.Bool("enabled", &f.enabled,
            AutoValue<bool>{"DeepSpeedAutos::fp16_enabled", autos.fp16_enabled});
  fp16.Bool("auto_cast", &f.auto_cast);
  fp16.Real("loss_scale", &f.loss_scale, 0, std::numeric_limits<float>::max());
  fp16.Integer("initial_scale_power", &f.initial_scale_power, 0, 127);
  fp16.Integer("loss_scale_window", &f.loss_scale_window, 1);
  fp16.Integer("hysteresis", &f.hysteresis, 1);
  fp16.Bool("consecutive_hysteresis", &f.consecutive_hysteresis);
  fp16.Real("min_loss_scale", &f.min_loss_scale, std::numeric_limits<float>::min(),
            std::numeric_limits<float>::max());
  fp16.Off("fp16_master_weights_and_grads", "master weights are float32 here");
  fp16.Finish();

  const absl::string_view key = root.Alias("bf16", "bfloat16");
  JsonSection bf16(root.Find(key), std::string(key), &config.ignored);
  bf16.Bool("enabled", &config.bf16_enabled,
            AutoValue<bool>{"DeepSpeedAutos::bf16_enabled", autos.bf16_enabled});
  bf16.Off("check_grad_overflow", "bfloat16 has float32's range; use fp16 for checked steps");
  bf16.Off("bf16_master_weights_and_grads", "master weights are float32 here");
  bf16.Off("bf16_optimizer_states", "the state of optimizers is float32 here");
  bf16.Ignored({"immediate_grad_update"});
  bf16.Finish();
  if (config.fp16.enabled && config.bf16_enabled) {
    throw InvalidArgumentError("fp16.enabled and bf16.enabled are both true; choose one");
  }
}

OffloadDevice ReadOffload(JsonSection& zero, absl::string_view key, Ignored* ignored) {
  JsonSection offload(zero.Find(key), absl::StrCat(zero.path(), ".", key), ignored);
  size_t device = 0;
  offload.Choice("device", &device, {"none", "cpu", "nvme"});
  if (device == 2) {
    throw UnimplementedError(
        offload.Message("device", "tensors are offloaded to memory only; write \"cpu\""));
  }
  double ratio = 1;
  offload.Real("ratio", &ratio, 0, 1);
  if (ratio != 1) {
    throw UnimplementedError(offload.Message("ratio", "all or nothing is offloaded; write 1"));
  }
  offload.Off("super_offload", "leave it out");
  offload.Ignored({"nvme_path", "buffer_count", "buffer_size", "max_in_cpu", "pin_memory",
                   "pipeline", "pipeline_read", "pipeline_write", "fast_init",
                   "cpuadam_cores_perc"});
  offload.Finish();
  return device == 1 ? OffloadDevice::kCpu : OffloadDevice::kNone;
}

// What h, the hidden size, makes of `value`, when the program has given it.
template <typename Fn>
AutoValue<int64_t> OfHiddenSize(const DeepSpeedAutos& autos, Fn fn) {
  AutoValue<int64_t> result{"DeepSpeedAutos::hidden_size", std::nullopt};
  // 2^31 squared is within int64.
  if (!autos.hidden_size.has_value()) return result;
  if (*autos.hidden_size < 1 || *autos.hidden_size > int64_t{1} << 31) {
    throw InvalidArgumentError(
        absl::StrCat("DeepSpeedAutos::hidden_size is ", *autos.hidden_size, "; give 1 to 2^31"));
  }
  result.value = fn(*autos.hidden_size);
  return result;
}

void ReadZeroSizes(JsonSection& section, const DeepSpeedAutos& autos, DeepSpeedZero& zero) {
  section.Integer("reduce_bucket_size", &zero.reduce_bucket_size, 0, kNoMaximum,
                  OfHiddenSize(autos, [](int64_t h) { return h * h; }));
  section.Integer("allgather_bucket_size", &zero.allgather_bucket_size, 0);
  section.Integer("sub_group_size", &zero.sub_group_size, 0);
  section.Integer(
      section.Alias("stage3_prefetch_bucket_size", "prefetch_bucket_size"),
      &zero.stage3_prefetch_bucket_size, 0, kNoMaximum,
      OfHiddenSize(autos, [](int64_t h) { return static_cast<int64_t>(0.9 * double(h * h)); }));
  section.Integer(
      section.Alias("stage3_param_persistence_threshold", "param_persistence_threshold"),
      &zero.stage3_param_persistence_threshold, 0, kNoMaximum,
      OfHiddenSize(autos, [](int64_t h) { return 10 * h; }));
  section.Integer("zero_hpz_partition_size", &zero.zero_hpz_partition_size, 1);
  section.Integer("mics_shard_size", &zero.mics_shard_size, -1);
}

void ReadAbsentZeroFeatures(JsonSection& section) {
  section.Off("cpu_offload", "write \"offload_optimizer\": {\"device\": \"cpu\"}");
  section.Off("cpu_offload_param", "write \"offload_param\": {\"device\": \"cpu\"}");
  section.Off("cpu_offload_params", "write \"offload_param\": {\"device\": \"cpu\"}");
  const char* const exact = "parameters and gradients are communicated exactly here; leave it out";
  section.Off("zero_quantized_weights", exact);
  section.Off("zero_quantized_nontrainable_weights", exact);
  section.Off("zero_quantized_gradients", exact);
  if (section.Has("zeropp_loco_param")) {
    throw UnimplementedError(section.Message("zeropp_loco_param", exact));
  }
  section.Only("load_from_fp32_weights", true, "master weights are always loaded as float32");
  section.Off("elastic_checkpoint", "DeepSpeed no longer has it either; leave it out");
  section.Off("legacy_stage1", "there is one stage 1; leave it out");
  section.Only("ignore_unused_parameters", true, "unused parameters are no error; leave it out");
  section.Ignored({"cpu_offload_use_pin_memory",
                   "reduce_scatter",
                   "allgather_partitions",
                   "use_multi_rank_bucket_allreduce",
                   "allgather_sequential",
                   "stage3_model_persistence_threshold",
                   "model_persistence_threshold",
                   "stage3_max_live_parameters",
                   "max_live_parameters",
                   "stage3_max_reuse_distance",
                   "max_reuse_distance",
                   "stage3_module_granularity_threshold",
                   "module_granularity_threshold",
                   "stage3_use_all_reduce_for_fetch_params",
                   "use_all_reduce_for_fetch_params",
                   "stage3_allgather_sequential",
                   "mics_hierarchical_params_gather",
                   "memory_efficient_linear",
                   "pipeline_loading_checkpoint",
                   "override_module_apply",
                   "enable_sanity_checks",
                   "log_trace_cache_warnings"});
}

void CheckZero(JsonSection& section, const DeepSpeedZero& zero, int64_t ranks) {
  const auto need = [&](bool ok, absl::string_view key, absl::string_view remedy) {
    if (!ok) throw InvalidArgumentError(section.Message(key, remedy));
  };
  const std::string stage = absl::StrCat("the stage is ", zero.stage);
  need(zero.offload_optimizer == OffloadDevice::kNone || zero.stage >= 1, "offload_optimizer",
       absl::StrCat("it needs stage 1, 2 or 3, and ", stage));
  need(zero.offload_param == OffloadDevice::kNone || zero.stage == 3, "offload_param",
       absl::StrCat("it needs stage 3, and ", stage));
  need(!zero.round_robin_gradients || zero.stage == 1 || zero.stage == 2, "round_robin_gradients",
       absl::StrCat("it needs stage 1 or 2, and ", stage));
  const int64_t hpz = zero.zero_hpz_partition_size, mics = zero.mics_shard_size;
  need(hpz == 1 || zero.stage == 3, "zero_hpz_partition_size",
       absl::StrCat("it needs stage 3, and ", stage));
  need(hpz >= ranks || ranks % hpz == 0, "zero_hpz_partition_size",
       absl::StrCat("it must divide the ", ranks, " ranks"));
  need(mics != 0, "mics_shard_size", "it must be -1 (all ranks) or at least 1");
  need(mics == -1 || zero.stage == 3, "mics_shard_size",
       absl::StrCat("it needs stage 3, and ", stage));
  need(mics == -1 || ranks % mics == 0, "mics_shard_size",
       absl::StrCat("it must divide the ", ranks, " ranks"));
  need(mics == -1 || hpz == 1 || hpz >= ranks, "mics_shard_size",
       absl::StrCat("zero_hpz_partition_size is ", hpz, " too; use one of the two"));
}

void ReadZero(JsonSection& root, const DeepSpeedAutos& autos, DeepSpeedConfig& config) {
  const JsonNode* node = root.Find("zero_optimization");
  if (node != nullptr && node->kind == JsonNode::Kind::kBool) {
    throw InvalidArgumentError(root.Message(
        "zero_optimization", "it must be an object, e.g. {\"stage\": 1} for what true once meant"));
  }
  JsonSection section(node, "zero_optimization", &config.ignored);
  DeepSpeedZero& zero = config.zero;
  section.Integer("stage", &zero.stage, 0, 3);
  zero.overlap_comm = zero.stage == 3;
  section.Bool("overlap_comm", &zero.overlap_comm);
  section.Bool("contiguous_gradients", &zero.contiguous_gradients);
  section.Bool("round_robin_gradients", &zero.round_robin_gradients);
  section.Bool(section.Alias(section.Alias("stage3_gather_16bit_weights_on_model_save",
                                           "gather_16bit_weights_on_model_save"),
                             "stage3_gather_fp16_weights_on_model_save"),
               &zero.stage3_gather_16bit_weights_on_model_save,
               AutoValue<bool>{"DeepSpeedAutos::gather_16bit_weights_on_model_save",
                               autos.gather_16bit_weights_on_model_save});
  ReadZeroSizes(section, autos, zero);
  zero.offload_optimizer = ReadOffload(section, "offload_optimizer", &config.ignored);
  zero.offload_param = ReadOffload(section, "offload_param", &config.ignored);
  ReadAbsentZeroFeatures(section);
  section.Finish();
  // Read, so that their values are checked, and of no effect on results here.
  for (const char* key :
       {"overlap_comm", "contiguous_gradients", "round_robin_gradients", "reduce_bucket_size",
        "allgather_bucket_size", "sub_group_size", "stage3_param_persistence_threshold",
        "param_persistence_threshold", "stage3_gather_16bit_weights_on_model_save",
        "gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save"}) {
    if (section.Has(key)) config.ignored.push_back(absl::StrCat(section.path(), ".", key));
  }
  CheckZero(section, zero, config.ranks);
  // A second copy over all ranks is the first one.
  if (zero.zero_hpz_partition_size > 1 && zero.zero_hpz_partition_size >= config.ranks) {
    zero.zero_hpz_partition_size = 1;
    config.ignored.push_back(absl::StrCat(section.path(), ".zero_hpz_partition_size"));
  }
}

void ReadActivationCheckpointing(JsonSection& root, DeepSpeedConfig& config) {
  const JsonNode* node = root.Find("activation_checkpointing");
  if (node == nullptr) return;
  JsonSection section(node, "activation_checkpointing", &config.ignored);
  DeepSpeedActivationCheckpointing& result = config.activation_checkpointing.emplace();
  section.Bool("partition_activations", &result.partition_activations);
  section.Bool("cpu_checkpointing", &result.cpu_checkpointing);
  if (section.Has("number_checkpoints")) {
    section.Integer("number_checkpoints", &result.number_checkpoints.emplace(0), 1);
  }
  // What is recomputed, and where it is kept, is the program's to say and changes no result.
  section.Ignored({"partition_activations", "cpu_checkpointing", "number_checkpoints",
                   "contiguous_memory_optimization", "synchronize_checkpoint_boundary", "profile"});
  section.Finish();
}

void ReadGradients(JsonSection& root, const DeepSpeedAutos& autos, DeepSpeedConfig& config) {
  root.Real("gradient_clipping", &config.gradient_clipping, 0, std::numeric_limits<double>::max(),
            AutoValue<double>{"DeepSpeedAutos::gradient_clipping", autos.gradient_clipping});
  root.Bool("prescale_gradients", &config.prescale_gradients);
  // Sums over ranks are accumulated in float32: dividing before changes nothing.
  if (root.Has("prescale_gradients")) config.ignored.push_back("prescale_gradients");
  root.Real("gradient_predivide_factor", &config.gradient_predivide_factor,
            std::numeric_limits<float>::min());
  if (config.prescale_gradients && config.gradient_predivide_factor != 1) {
    throw InvalidArgumentError(root.Message(
        "gradient_predivide_factor",
        "prescale_gradients is true and divides by the number of ranks; use one of the two"));
  }
  if (root.Has("communication_data_type")) {
    const DType types[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kBFloat16};
    size_t index = 0;
    root.Choice("communication_data_type", &index, {"fp32", "fp16", "bf16", "bfp16"});
    config.communication_data_type = types[index];
  }
}

void ReadDataTypes(JsonSection& root, Ignored* ignored) {
  JsonSection section(root.Find("data_types"), "data_types", ignored);
  size_t index = 0;
  section.Choice("grad_accum_dtype", &index, {"fp32", "fp16", "bf16"});
  if (index != 0) {
    throw UnimplementedError(section.Message(
        "grad_accum_dtype", "gradients are accumulated in float32; write \"fp32\""));
  }
  section.Finish();
}

void ReadAbsentFeatures(JsonSection& root) {
  root.Off("amp", "write {\"enabled\": true} as bf16 or fp16");
  root.Off("torch_autocast", "write {\"enabled\": true} as bf16 or fp16");
  root.Off("fp32_allreduce", "write \"communication_data_type\": \"fp32\"");
  root.Off("sparse_gradients", "gradients are dense here; leave it out");
  root.Absent("sparse_attention", "attention is dense here; leave it out");
  root.Off("disable_allgather", "leave it out");
  root.Off("dataloader_drop_last", "say so where the program makes its loader");
  root.Absent("pipeline", "pipelines are built by the program");
  for (const char* key :
       {"elasticity", "autotuning", "hybrid_engine", "curriculum_learning", "data_efficiency",
        "progressive_layer_drop", "eigenvalue", "quantize_training"}) {
    root.Off(key, "it does not exist here; leave it out");
  }
  for (const char* key :
       {"tensor_parallel", "compression_training", "weight_quantization", "domino", "zenflow"}) {
    root.Absent(key, "it does not exist here; leave it out");
  }
  root.Ignored({"dump_state", "memory_breakdown", "flops_profiler", "tensorboard", "wandb", "comet",
                "csv_monitor", "monitor_config", "comms_logger", "timers", "aio", "nebula",
                "checkpoint", "compile", "graph_harvesting", "vocabulary_size",
                "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer",
                "seq_parallel_communication_data_type"});
}

}  // namespace

DeepSpeedConfig ParseDeepSpeedConfig(absl::string_view json, int64_t ranks,
                                     const DeepSpeedAutos& autos) {
  if (ranks < 1) {
    throw InvalidArgumentError(
        absl::StrCat("ParseDeepSpeedConfig: ", ranks, " ranks; there is at least 1"));
  }
  const JsonNode tree = ParseJsonTree(json);
  DeepSpeedConfig config;
  config.ranks = ranks;
  JsonSection root(&tree, "", &config.ignored);
  ReadPrecision(root, autos, config);
  ReadZero(root, autos, config);
  config.optimizer = internal::ReadOptimizer(root, autos, &config.ignored);
  config.scheduler = internal::ReadScheduler(root, autos, &config.ignored);
  ReadActivationCheckpointing(root, config);
  ReadGradients(root, autos, config);
  root.Bool("wall_clock_breakdown", &config.wall_clock_breakdown);
  root.Integer("steps_per_print", &config.steps_per_print, 1);
  ReadDataTypes(root, &config.ignored);
  ReadAbsentFeatures(root);
  const Batch batch = ReadBatch(root, autos);
  root.Finish();
  ResolveBatch(batch, config);
  return config;
}

DeepSpeedConfig LoadDeepSpeedConfig(const std::string& path, int64_t ranks,
                                    const DeepSpeedAutos& autos) {
  std::ifstream file(path, std::ios::binary);
  // One byte more than is read: the parser names the limit.
  std::string text(kMaximumJsonBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) {
    throw NotFoundError(absl::StrCat("LoadDeepSpeedConfig: ", path, " cannot be read"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  try {
    return ParseDeepSpeedConfig(text, ranks, autos);
  } catch (const Error& error) {
    throw error.WithContext(path);
  }
}

optim::ScheduleFunction MakeSchedule(const DeepSpeedScheduler& scheduler) {
  if (const auto* constant = std::get_if<optim::WarmupLrOptions>(&scheduler)) {
    return optim::WarmupLr(*constant);
  }
  if (const auto* decay = std::get_if<optim::WarmupDecayLrOptions>(&scheduler)) {
    return optim::WarmupDecayLr(*decay);
  }
  return optim::WarmupCosineLr(std::get<optim::WarmupCosineLrOptions>(scheduler));
}

}  // namespace lockstep::engine
