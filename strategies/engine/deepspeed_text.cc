// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// ToString of deepspeed_config.h.

#include "lockstep/strategies/engine/deepspeed_config.h"
#include "nlohmann/json.hpp"

namespace lockstep::engine {
namespace {

using Json = nlohmann::ordered_json;

Json Adam(const auto& options, bool decoupled) {
  return {{"type", decoupled ? "AdamW" : "Adam"},
          {"params",
           {{"lr", options.lr},
            {"betas", {options.beta1, options.beta2}},
            {"eps", options.epsilon},
            {"weight_decay", options.weight_decay},
            {"amsgrad", options.amsgrad},
            {"maximize", options.maximize},
            {"adam_w_mode", decoupled}}}};
}

struct OptimizerText {
  Json operator()(const optim::AdamOptions& options) const { return Adam(options, false); }
  Json operator()(const optim::AdamWOptions& options) const { return Adam(options, true); }
  Json operator()(const optim::SgdOptions& options) const {
    return {{"type", "SGD"},
            {"params",
             {{"lr", options.lr},
              {"momentum", options.momentum},
              {"dampening", options.dampening},
              {"weight_decay", options.weight_decay},
              {"nesterov", options.nesterov},
              {"maximize", options.maximize}}}};
  }
  Json operator()(const optim::AdagradOptions& options) const {
    return {{"type", "Adagrad"},
            {"params",
             {{"lr", options.lr},
              {"lr_decay", options.lr_decay},
              {"weight_decay", options.weight_decay},
              {"initial_accumulator_value", options.initial_accumulator_value},
              {"eps", options.epsilon},
              {"maximize", options.maximize}}}};
  }
  Json operator()(const optim::RmspropOptions& options) const {
    return {{"type", "RMSprop"},
            {"params",
             {{"lr", options.lr},
              {"alpha", options.alpha},
              {"eps", options.epsilon},
              {"weight_decay", options.weight_decay},
              {"momentum", options.momentum},
              {"centered", options.centered},
              {"maximize", options.maximize}}}};
  }
};

const char* TypeName(optim::WarmupType type) {
  return type == optim::WarmupType::kLog ? "log" : "linear";
}

template <typename Options>
Json WarmupParams(const Options& options) {
  return {{"warmup_min_lr", options.warmup_min_lr},
          {"warmup_max_lr", options.warmup_max_lr},
          {"warmup_num_steps", options.warmup_num_steps},
          {"warmup_type", TypeName(options.warmup_type)}};
}

struct SchedulerText {
  Json operator()(const optim::WarmupLrOptions& options) const {
    return {{"type", "WarmupLR"}, {"params", WarmupParams(options)}};
  }
  Json operator()(const optim::WarmupDecayLrOptions& options) const {
    Json params = WarmupParams(options);
    params["total_num_steps"] = options.total_num_steps;
    return {{"type", "WarmupDecayLR"}, {"params", std::move(params)}};
  }
  Json operator()(const optim::WarmupCosineLrOptions& options) const {
    return {{"type", "WarmupCosineLR"},
            {"params",
             {{"warmup_min_ratio", options.warmup_min_ratio},
              {"warmup_num_steps", options.warmup_num_steps},
              {"warmup_type", TypeName(options.warmup_type)},
              {"cos_min_ratio", options.cos_min_ratio},
              {"total_num_steps", options.total_num_steps}}}};
  }
};

Json Offload(OffloadDevice device) {
  return {{"device", device == OffloadDevice::kCpu ? "cpu" : "none"}};
}

Json ZeroText(const DeepSpeedZero& zero) {
  return {
      {"stage", zero.stage},
      {"offload_optimizer", Offload(zero.offload_optimizer)},
      {"offload_param", Offload(zero.offload_param)},
      {"overlap_comm", zero.overlap_comm},
      {"contiguous_gradients", zero.contiguous_gradients},
      {"round_robin_gradients", zero.round_robin_gradients},
      {"reduce_bucket_size", zero.reduce_bucket_size},
      {"allgather_bucket_size", zero.allgather_bucket_size},
      {"sub_group_size", zero.sub_group_size},
      {"stage3_prefetch_bucket_size", zero.stage3_prefetch_bucket_size},
      {"stage3_param_persistence_threshold", zero.stage3_param_persistence_threshold},
      {"stage3_gather_16bit_weights_on_model_save", zero.stage3_gather_16bit_weights_on_model_save},
      {"zero_hpz_partition_size", zero.zero_hpz_partition_size},
      {"mics_shard_size", zero.mics_shard_size}};
}

Json Fp16Text(const DeepSpeedFp16& fp16) {
  return {{"enabled", fp16.enabled},
          {"auto_cast", fp16.auto_cast},
          {"loss_scale", fp16.loss_scale},
          {"initial_scale_power", fp16.initial_scale_power},
          {"loss_scale_window", fp16.loss_scale_window},
          {"hysteresis", fp16.hysteresis},
          {"consecutive_hysteresis", fp16.consecutive_hysteresis},
          {"min_loss_scale", fp16.min_loss_scale}};
}

const char* ShortName(DType dtype) {
  return dtype == DType::kFloat32 ? "fp32" : dtype == DType::kFloat16 ? "fp16" : "bf16";
}

}  // namespace

std::string ToString(const DeepSpeedConfig& config) {
  Json json = {{"train_batch_size", config.train_batch_size},
               {"train_micro_batch_size_per_gpu", config.train_micro_batch_size_per_gpu},
               {"gradient_accumulation_steps", config.gradient_accumulation_steps},
               {"gradient_clipping", config.gradient_clipping},
               {"prescale_gradients", config.prescale_gradients},
               {"gradient_predivide_factor", config.gradient_predivide_factor}};
  if (config.communication_data_type.has_value()) {
    json["communication_data_type"] = ShortName(*config.communication_data_type);
  }
  json["fp16"] = Fp16Text(config.fp16);
  json["bf16"] = {{"enabled", config.bf16_enabled}};
  json["zero_optimization"] = ZeroText(config.zero);
  if (config.optimizer.has_value()) {
    json["optimizer"] = std::visit(OptimizerText(), *config.optimizer);
  }
  if (config.scheduler.has_value()) {
    json["scheduler"] = std::visit(SchedulerText(), *config.scheduler);
  }
  if (const auto& section = config.activation_checkpointing; section.has_value()) {
    Json& text = json["activation_checkpointing"];
    text["partition_activations"] = section->partition_activations;
    text["cpu_checkpointing"] = section->cpu_checkpointing;
    if (section->number_checkpoints.has_value()) {
      text["number_checkpoints"] = *section->number_checkpoints;
    }
  }
  json["wall_clock_breakdown"] = config.wall_clock_breakdown;
  json["steps_per_print"] = config.steps_per_print;
  return json.dump(2);
}

}  // namespace lockstep::engine
