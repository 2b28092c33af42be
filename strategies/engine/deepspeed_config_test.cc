// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/engine/deepspeed_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"

namespace lockstep::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kFiles[] = {"zero2_auto", "zero3_auto", "zero1_bf16", "zero3_offload",
                                  "stage0_fp32"};

std::string PathOf(absl::string_view name) {
  return absl::StrCat("strategies/engine/testdata/", name, ".json");
}

std::string TextOf(absl::string_view name) {
  std::ifstream file(PathOf(name));
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

DeepSpeedAutos AllAutos() {
  DeepSpeedAutos autos;
  autos.train_batch_size = 64;
  autos.train_micro_batch_size_per_gpu = 8;
  autos.gradient_accumulation_steps = 2;
  autos.gradient_clipping = 0.75;
  autos.fp16_enabled = false;
  autos.bf16_enabled = true;
  autos.lr = 3e-4;
  autos.beta1 = 0.85;
  autos.beta2 = 0.97;
  autos.eps = 1e-7;
  autos.weight_decay = 0.05;
  autos.momentum = 0.5;
  autos.warmup_num_steps = 10;
  autos.total_num_steps = 200;
  autos.hidden_size = 768;
  autos.gather_16bit_weights_on_model_save = true;
  return autos;
}

// A file of one section, which is filled up with a batch.
DeepSpeedConfig Parse(absl::string_view members, const DeepSpeedAutos& autos = {},
                      int64_t ranks = 4) {
  return ParseDeepSpeedConfig(absl::StrCat("{\"train_batch_size\": 8,\n", members, "}"), ranks,
                              autos);
}
std::string Refusal(absl::string_view members, const DeepSpeedAutos& autos = {},
                    int64_t ranks = 4) {
  return MessageOf([&] { Parse(members, autos, ranks); });
}

// ---- Files as they are found ----

TEST(DeepSpeedConfig, Zero2WithAutos) {
  const DeepSpeedConfig config = LoadDeepSpeedConfig(PathOf("zero2_auto"), 4, AllAutos());
  EXPECT_EQ(config.train_batch_size, 64);
  EXPECT_EQ(config.train_micro_batch_size_per_gpu, 8);
  EXPECT_EQ(config.gradient_accumulation_steps, 2);
  EXPECT_EQ(config.gradient_clipping, 0.75);
  EXPECT_EQ(config.steps_per_print, 2000);
  EXPECT_FALSE(config.fp16.enabled);
  EXPECT_TRUE(config.bf16_enabled);
  EXPECT_EQ(config.zero.stage, 2);
  EXPECT_EQ(config.zero.offload_optimizer, OffloadDevice::kCpu);
  EXPECT_EQ(config.zero.offload_param, OffloadDevice::kNone);
  EXPECT_TRUE(config.zero.overlap_comm);
  EXPECT_EQ(config.zero.allgather_bucket_size, 200'000'000);
  EXPECT_EQ(config.zero.reduce_bucket_size, 200'000'000);
  const auto& adam = std::get<optim::AdamWOptions>(config.optimizer.value());
  EXPECT_EQ(adam.lr, 3e-4);
  EXPECT_EQ(adam.beta1, 0.85);
  EXPECT_EQ(adam.beta2, 0.97);
  EXPECT_EQ(adam.epsilon, 1e-7);
  EXPECT_EQ(adam.weight_decay, 0.05);
  const auto& warmup = std::get<optim::WarmupLrOptions>(config.scheduler.value());
  EXPECT_EQ(warmup.warmup_min_lr, 0);
  EXPECT_EQ(warmup.warmup_max_lr, 3e-4);
  EXPECT_EQ(warmup.warmup_num_steps, 10);
  EXPECT_EQ(warmup.warmup_type, optim::WarmupType::kLog);
  EXPECT_EQ(MakeSchedule(*config.scheduler).LearningRate(100, 0, 1), 3e-4);
  EXPECT_THAT(
      config.ignored,
      ElementsAre("zero_optimization.offload_optimizer.pin_memory",
                  "zero_optimization.reduce_scatter", "zero_optimization.allgather_partitions",
                  "zero_optimization.overlap_comm", "zero_optimization.contiguous_gradients",
                  "zero_optimization.reduce_bucket_size",
                  "zero_optimization.allgather_bucket_size"));
}

TEST(DeepSpeedConfig, Zero3WithAutos) {
  DeepSpeedAutos autos = AllAutos();
  autos.train_batch_size.reset();  // follows from the others
  autos.fp16_enabled = true;
  autos.bf16_enabled = false;
  const DeepSpeedConfig config = LoadDeepSpeedConfig(PathOf("zero3_auto"), 6, autos);
  EXPECT_EQ(config.train_batch_size, 96);
  EXPECT_TRUE(config.fp16.enabled);
  EXPECT_EQ(config.fp16.initial_scale_power, 32);
  EXPECT_EQ(config.zero.stage, 3);
  EXPECT_EQ(config.zero.offload_optimizer, OffloadDevice::kNone);
  EXPECT_EQ(config.zero.reduce_bucket_size, 768 * 768);
  EXPECT_EQ(config.zero.stage3_prefetch_bucket_size, 530841);  // 0.9 * 768^2, rounded down
  EXPECT_EQ(config.zero.stage3_param_persistence_threshold, 7680);
  EXPECT_TRUE(config.zero.stage3_gather_16bit_weights_on_model_save);
  const auto& decay = std::get<optim::WarmupDecayLrOptions>(config.scheduler.value());
  EXPECT_EQ(decay.total_num_steps, 200);
  EXPECT_EQ(decay.warmup_type, optim::WarmupType::kLinear);
  EXPECT_EQ(MakeSchedule(*config.scheduler).LearningRate(201, 0, 1), 0);
  EXPECT_THAT(
      config.ignored,
      ElementsAre("zero_optimization.stage3_max_live_parameters",
                  "zero_optimization.stage3_max_reuse_distance", "zero_optimization.overlap_comm",
                  "zero_optimization.contiguous_gradients", "zero_optimization.reduce_bucket_size",
                  "zero_optimization.sub_group_size",
                  "zero_optimization.stage3_param_persistence_threshold",
                  "zero_optimization.stage3_gather_16bit_weights_on_model_save"));
}

TEST(DeepSpeedConfig, Zero1InBfloat16) {
  const DeepSpeedConfig config = LoadDeepSpeedConfig(PathOf("zero1_bf16"), 8);
  EXPECT_EQ(config.gradient_accumulation_steps, 3);
  EXPECT_TRUE(config.bf16_enabled);
  EXPECT_EQ(config.communication_data_type, DType::kFloat32);
  EXPECT_EQ(config.zero.stage, 1);
  EXPECT_TRUE(config.zero.round_robin_gradients);
  EXPECT_FALSE(config.zero.overlap_comm);
  EXPECT_TRUE(config.wall_clock_breakdown);
  // "Adam" is AdamW there.
  EXPECT_EQ(std::get<optim::AdamWOptions>(config.optimizer.value()).weight_decay, 0.1);
  const auto& cosine = std::get<optim::WarmupCosineLrOptions>(config.scheduler.value());
  EXPECT_EQ(cosine.cos_min_ratio, 0.1);
  EXPECT_EQ(cosine.warmup_min_ratio, 0);
  EXPECT_EQ(cosine.total_num_steps, 5000);
  EXPECT_NEAR(MakeSchedule(*config.scheduler).LearningRate(5000, 0, 6e-4), 6e-5, 1e-18);
  EXPECT_THAT(config.ignored,
              ElementsAre("bf16.immediate_grad_update", "zero_optimization.round_robin_gradients",
                          "prescale_gradients", "flops_profiler", "tensorboard"));
}

TEST(DeepSpeedConfig, Zero3WithOffload) {
  const DeepSpeedConfig config = LoadDeepSpeedConfig(PathOf("zero3_offload"), 4);
  EXPECT_EQ(config.train_batch_size, 64);
  EXPECT_EQ(config.gradient_clipping, 0.5);
  EXPECT_TRUE(config.fp16.enabled);
  EXPECT_EQ(config.fp16.initial_scale_power, 12);
  EXPECT_EQ(config.fp16.loss_scale_window, 500);
  EXPECT_EQ(config.fp16.hysteresis, 3);
  EXPECT_TRUE(config.fp16.consecutive_hysteresis);
  EXPECT_EQ(config.fp16.min_loss_scale, 4);
  EXPECT_EQ(config.zero.offload_optimizer, OffloadDevice::kCpu);
  EXPECT_EQ(config.zero.offload_param, OffloadDevice::kCpu);
  EXPECT_FALSE(config.zero.overlap_comm);
  EXPECT_EQ(config.zero.reduce_bucket_size, 1'000'000);
  EXPECT_EQ(config.zero.stage3_prefetch_bucket_size, 2'000'000);
  EXPECT_EQ(config.zero.stage3_param_persistence_threshold, 10'000);
  EXPECT_EQ(config.zero.sub_group_size, 100'000'000);
  EXPECT_EQ(config.zero.zero_hpz_partition_size, 2);
  EXPECT_TRUE(config.zero.stage3_gather_16bit_weights_on_model_save);
  const auto& sgd = std::get<optim::SgdOptions>(config.optimizer.value());
  EXPECT_EQ(sgd.momentum, 0.9);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_EQ(config.activation_checkpointing.value().number_checkpoints, 12);
  EXPECT_TRUE(config.activation_checkpointing->cpu_checkpointing);
}

TEST(DeepSpeedConfig, WhatHasNoEffectIsListed) {
  EXPECT_THAT(Parse("\"activation_checkpointing\": {\"partition_activations\": true, "
                    "\"cpu_checkpointing\": true, \"number_checkpoints\": 4}")
                  .ignored,
              ElementsAre("activation_checkpointing.partition_activations",
                          "activation_checkpointing.cpu_checkpointing",
                          "activation_checkpointing.number_checkpoints"));
  EXPECT_THAT(Parse("\"activation_checkpointing\": {\"number_checkpoints\": null}").ignored,
              IsEmpty());
  // Over all of the 4 ranks, or more, a second copy of the parameters is the first one.
  for (const int ranks : {4, 8}) {
    const DeepSpeedConfig config =
        Parse(absl::StrCat("\"zero_optimization\": {\"stage\": 3, "
                           "\"zero_hpz_partition_size\": ",
                           ranks, ", \"mics_shard_size\": 2}"));
    EXPECT_EQ(config.zero.zero_hpz_partition_size, 1);
    EXPECT_THAT(config.ignored, ElementsAre("zero_optimization.zero_hpz_partition_size"));
  }
}

TEST(DeepSpeedConfig, Stage0) {
  const DeepSpeedConfig config = LoadDeepSpeedConfig(PathOf("stage0_fp32"), 4);
  EXPECT_EQ(config.train_micro_batch_size_per_gpu, 8);
  EXPECT_EQ(config.gradient_accumulation_steps, 1);
  EXPECT_TRUE(config.prescale_gradients);
  EXPECT_EQ(std::get<optim::AdamOptions>(config.optimizer.value()).beta1, 0.8);
  EXPECT_FALSE(config.communication_data_type.has_value());
  EXPECT_THAT(config.ignored, ElementsAre("prescale_gradients"));
}

TEST(DeepSpeedConfig, DefaultsAreDeepSpeeds) {
  const DeepSpeedConfig config = ParseDeepSpeedConfig("{\"train_batch_size\": 3}", 3);
  EXPECT_EQ(config.gradient_clipping, 0);
  EXPECT_EQ(config.zero.stage, 0);
  EXPECT_EQ(config.zero.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(config.zero.stage3_prefetch_bucket_size, 50'000'000);
  EXPECT_EQ(config.zero.stage3_param_persistence_threshold, 100'000);
  EXPECT_EQ(config.fp16.hysteresis, 2);
  EXPECT_EQ(config.steps_per_print, 10);
  EXPECT_FALSE(config.optimizer.has_value());
  EXPECT_FALSE(config.activation_checkpointing.has_value());
  EXPECT_TRUE(Parse("\"zero_optimization\": {\"stage\": 3}").zero.overlap_comm);
  const auto adam = [](absl::string_view params) {
    return *Parse(absl::StrCat("\"optimizer\": {\"type\": \"AdamW\", \"params\": ", params, "}"))
                .optimizer;
  };
  EXPECT_EQ(std::get<optim::AdamWOptions>(adam("{}")).weight_decay, 0);
  EXPECT_EQ(std::get<optim::AdamWOptions>(adam("{\"torch_adam\": true}")).weight_decay, 0.01);
}

// What was resolved is read back as the same.
TEST(DeepSpeedConfig, ToStringIsRead) {
  for (const char* name : kFiles) {
    const DeepSpeedConfig config = LoadDeepSpeedConfig(PathOf(name), 4, AllAutos());
    const std::string text = ToString(config);
    const DeepSpeedConfig again = ParseDeepSpeedConfig(text, 4);
    EXPECT_EQ(ToString(again), text) << name;
  }
  const std::string text = ToString(LoadDeepSpeedConfig(PathOf("zero2_auto"), 4, AllAutos()));
  EXPECT_THAT(text, AllOf(HasSubstr("\"gradient_clipping\": 0.75"), HasSubstr("\"lr\": 0.0003"),
                          HasSubstr("\"warmup_type\": \"log\"")));
  for (const char* optimizer :
       {"\"Adagrad\", \"params\": {\"lr\": 0.5, \"lr_decay\": 0.25, \"eps\": 0.125}",
        "\"RMSprop\", \"params\": {\"alpha\": 0.5, \"centered\": true, \"momentum\": 0.25}"}) {
    const std::string once =
        ToString(Parse(absl::StrCat("\"optimizer\": {\"type\": ", optimizer, "}")));
    EXPECT_EQ(ToString(ParseDeepSpeedConfig(once, 4)), once);
    EXPECT_THAT(once, AllOf(HasSubstr("0.5"), HasSubstr("0.25")));
  }
}

// ---- Batch ----

TEST(DeepSpeedConfig, AnyTwoOfTheBatchGiveTheThird) {
  struct Case {
    const char* members;
    int64_t train, micro, accumulation;
  };
  const Case cases[] = {
      {"\"train_batch_size\": 24, \"train_micro_batch_size_per_gpu\": 4", 24, 4, 2},
      {"\"train_batch_size\": 24, \"gradient_accumulation_steps\": 4", 24, 2, 4},
      {"\"train_micro_batch_size_per_gpu\": 5, \"gradient_accumulation_steps\": 2", 30, 5, 2},
      {"\"train_batch_size\": 24", 24, 8, 1},
      {"\"train_micro_batch_size_per_gpu\": 5", 15, 5, 1},
      {"\"train_batch_size\": 6e1, \"train_micro_batch_size_per_gpu\": 5, "
       "\"gradient_accumulation_steps\": 4",
       60, 5, 4},
      {"\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": 7, "
       "\"gradient_accumulation_steps\": \"auto\"",
       21, 7, 1},
  };
  for (const Case& c : cases) {
    const DeepSpeedConfig config = ParseDeepSpeedConfig(absl::StrCat("{", c.members, "}"), 3);
    EXPECT_EQ(config.train_batch_size, c.train) << c.members;
    EXPECT_EQ(config.train_micro_batch_size_per_gpu, c.micro) << c.members;
    EXPECT_EQ(config.gradient_accumulation_steps, c.accumulation) << c.members;
  }
}

TEST(DeepSpeedConfig, BatchesThatDoNotFit) {
  const auto refusal = [](absl::string_view members, int64_t ranks = 3) {
    return MessageOf([&] { ParseDeepSpeedConfig(absl::StrCat("{", members, "}"), ranks); });
  };
  EXPECT_EQ(refusal("\"train_batch_size\": 25, \"train_micro_batch_size_per_gpu\": 4, "
                    "\"gradient_accumulation_steps\": 2"),
            "train_batch_size 25 is not train_micro_batch_size_per_gpu 4 * "
            "gradient_accumulation_steps 2 * 3 ranks = 24; change one of them, or leave one out");
  EXPECT_EQ(refusal("\"train_batch_size\": 25, \"train_micro_batch_size_per_gpu\": 4"),
            "train_batch_size 25 is not a multiple of train_micro_batch_size_per_gpu 4 * 3 ranks = "
            "12, so that there is no gradient_accumulation_steps; change one of them");
  EXPECT_THAT(refusal("\"train_batch_size\": 25"), HasSubstr("gradient_accumulation_steps 1 * 3"));
  EXPECT_THAT(refusal("\"gradient_accumulation_steps\": 2"), HasSubstr("neither train_batch_size"));
  EXPECT_THAT(refusal("\"train_batch_size\": \"auto\""), HasSubstr("neither train_batch_size"));
  EXPECT_THAT(refusal("\"train_batch_size\": 0"), HasSubstr("line 1: train_batch_size is 0; 0 is"));
  EXPECT_THAT(refusal("\"train_micro_batch_size_per_gpu\": 4611686018427387904"),
              HasSubstr("beyond 2^63"));
  EXPECT_THAT(refusal("\"train_batch_size\": 4", 0), HasSubstr("0 ranks; there is at least 1"));
}

// ---- Autos ----

TEST(DeepSpeedConfig, EveryAutoWithoutItsValueIsNamed) {
  const DeepSpeedAutos all = AllAutos();
  struct Case {
    const char* key;
    const char* field;
    void (*drop)(DeepSpeedAutos&);
  };
  const Case cases[] = {
      {"optimizer.params.lr", "::lr", [](DeepSpeedAutos& a) { a.lr.reset(); }},
      {"optimizer.params.betas", "::beta1", [](DeepSpeedAutos& a) { a.beta2.reset(); }},
      {"optimizer.params.eps", "::eps", [](DeepSpeedAutos& a) { a.eps.reset(); }},
      {"optimizer.params.weight_decay", "::weight_decay",
       [](DeepSpeedAutos& a) { a.weight_decay.reset(); }},
      {"scheduler.params.warmup_num_steps", "::warmup_num_steps",
       [](DeepSpeedAutos& a) { a.warmup_num_steps.reset(); }},
      {"scheduler.params.total_num_steps", "::total_num_steps",
       [](DeepSpeedAutos& a) { a.total_num_steps.reset(); }},
      {"fp16.enabled", "::fp16_enabled", [](DeepSpeedAutos& a) { a.fp16_enabled.reset(); }},
      {"bf16.enabled", "::bf16_enabled", [](DeepSpeedAutos& a) { a.bf16_enabled.reset(); }},
      {"zero_optimization.reduce_bucket_size", "::hidden_size",
       [](DeepSpeedAutos& a) { a.hidden_size.reset(); }},
      {"gradient_clipping", "::gradient_clipping",
       [](DeepSpeedAutos& a) { a.gradient_clipping.reset(); }},
      {"zero_optimization.stage3_gather_16bit_weights_on_model_save",
       "::gather_16bit_weights_on_model_save",
       [](DeepSpeedAutos& a) { a.gather_16bit_weights_on_model_save.reset(); }},
  };
  for (const Case& c : cases) {
    DeepSpeedAutos autos = all;
    c.drop(autos);
    const Error error = ErrorOf([&] { LoadDeepSpeedConfig(PathOf("zero3_auto"), 4, autos); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("zero3_auto.json: line "), HasSubstr(c.key),
                                       HasSubstr("is \"auto\""), HasSubstr(c.field)));
  }
  EXPECT_THAT(Refusal("\"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentum\": \"auto\"}}"),
              HasSubstr("DeepSpeedAutos::momentum"));
  EXPECT_EQ(Refusal("\n\"zero_optimization\":\n {\"stage\": \"auto\"}"),
            "line 4: zero_optimization.stage is \"auto\"; this key has no automatic value; write "
            "one");
}

TEST(DeepSpeedConfig, AutosAreCheckedAsValuesAre) {
  DeepSpeedAutos autos = AllAutos();
  autos.lr = -1;
  EXPECT_THAT(MessageOf([&] { LoadDeepSpeedConfig(PathOf("zero2_auto"), 4, autos); }),
              HasSubstr("-1 is out of range"));
  autos = AllAutos();
  autos.beta2 = 1;
  EXPECT_THAT(MessageOf([&] { LoadDeepSpeedConfig(PathOf("zero2_auto"), 4, autos); }),
              HasSubstr("1 is not within [0, 1)"));
  autos = AllAutos();
  autos.train_micro_batch_size_per_gpu = 0;
  EXPECT_THAT(MessageOf([&] { LoadDeepSpeedConfig(PathOf("zero2_auto"), 4, autos); }),
              HasSubstr("train_micro_batch_size_per_gpu is \"auto\"; 0 is out of range"));
}

// ---- Keys ----

TEST(DeepSpeedConfig, UnknownKeysAreRefusedWithTheNearest) {
  EXPECT_EQ(Refusal("\"gradient_cliping\": 1"),
            "line 2: gradient_cliping is no key that is known here; the nearest is "
            "gradient_clipping");
  EXPECT_THAT(Refusal("\"zero_optimization\": {\n\"overlap_com\": true}"),
              HasSubstr("line 3: zero_optimization.overlap_com is no key that is known here; the "
                        "nearest is zero_optimization.overlap_comm"));
  EXPECT_THAT(Refusal("\"fp16\": {\"loss_scale_windows\": 3}"),
              HasSubstr("nearest is fp16.loss_scale_window"));
  EXPECT_THAT(Refusal("\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"epsilon\": 1}}"),
              HasSubstr("nearest is optimizer.params.eps"));
  EXPECT_THAT(Refusal("\"optimizer\": {\"type\": \"AdamW\", \"parameters\": {}}"),
              HasSubstr("nearest is optimizer.params"));
  EXPECT_THAT(Refusal(absl::StrCat("\"", std::string(200000, 'x'), "\": 1")),
              HasSubstr("is no key that is known here"));
}

TEST(DeepSpeedConfig, KeysThereTwice) {
  EXPECT_EQ(Refusal("\"steps_per_print\": 2,\n\"steps_per_print\": 3"),
            "line 3: \"steps_per_print\" is there a second time, first on line 2; keep one");
  EXPECT_THAT(Refusal("\"bf16\": {}, \"bfloat16\": {}"), HasSubstr("bf16 is the same key"));
  EXPECT_TRUE(Parse("\"bfloat16\": {\"enabled\": true}").bf16_enabled);
}

TEST(DeepSpeedConfig, FeaturesThatDoNotExistHere) {
  struct Case {
    const char* members;
    const char* expected;
  };
  const Case cases[] = {
      {"\"zero_optimization\": {\"offload_param\": {\"device\": \"nvme\"}, \"stage\": 3}",
       "zero_optimization.offload_param.device is \"nvme\"; tensors are offloaded to memory only; "
       "write \"cpu\""},
      {"\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.3}}",
       "ratio is 0.3; all or nothing"},
      {"\"zero_optimization\": {\"zero_quantized_weights\": true}", "communicated exactly"},
      {"\"zero_optimization\": {\"zeropp_loco_param\": {}}", "communicated exactly"},
      {"\"zero_optimization\": {\"cpu_offload\": true}", "\"offload_optimizer\": {\"device\""},
      {"\"zero_optimization\": {\"load_from_fp32_weights\": false}", "float32"},
      {"\"amp\": {\"enabled\": true}", "amp is an object; write {\"enabled\": true} as bf16"},
      {"\"elasticity\": {\"enabled\": true}", "it does not exist here"},
      {"\"sparse_gradients\": true", "gradients are dense"},
      {"\"tensor_parallel\": {\"autotp_size\": 4}", "it does not exist here"},
      {"\"data_types\": {\"grad_accum_dtype\": \"bf16\"}", "accumulated in float32"},
      {"\"fp32_allreduce\": true", "communication_data_type"},
      {"\"optimizer\": {\"type\": \"OneBitAdam\"}",
       "does not exist here; there are Adam, AdamW, SGD, Adagrad, RMSprop"},
      {"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"bias_correction\": false}}",
       "always corrected"},
      {"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"max_grad_norm\": 1}}",
       "gradient_clipping"},
      {"\"scheduler\": {\"type\": \"OneCycle\"}", "there are WarmupLR, WarmupDecayLR"},
  };
  for (const Case& c : cases) {
    const Error error = ErrorOf([&] { Parse(c.members); });
    EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented) << c.members;
    EXPECT_THAT(error.message(), AllOf(HasSubstr("line 2: "), HasSubstr(c.expected)));
  }
  // Off, they are nothing.
  EXPECT_THAT(Parse("\"amp\": {\"enabled\": false, \"opt_level\": \"O1\"}, \"elasticity\": {}, "
                    "\"sparse_gradients\": false, \"curriculum_learning\": null, "
                    "\"compression_training\": {}, \"data_types\": {\"grad_accum_dtype\": null}")
                  .ignored,
              IsEmpty());
}

TEST(DeepSpeedConfig, Contradictions) {
  struct Case {
    const char* members;
    const char* expected;
  };
  const Case cases[] = {
      {"\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}", "choose one"},
      {"\"zero_optimization\": {\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}}",
       "offload_param is an object; it needs stage 3, and the stage is 2"},
      {"\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\"}}",
       "it needs stage 1, 2 or 3, and the stage is 0"},
      {"\"zero_optimization\": {\"stage\": 3, \"round_robin_gradients\": true}", "stage 1 or 2"},
      {"\"zero_optimization\": {\"stage\": 1, \"zero_hpz_partition_size\": 2}", "stage is 1"},
      {"\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 3}",
       "zero_hpz_partition_size is 3; it must divide the 4 ranks"},
      {"\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 3}", "divide the 4 ranks"},
      {"\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 0}", "-1 (all ranks)"},
      {"\"zero_optimization\": {\"stage\": 2, \"mics_shard_size\": 2}", "it needs stage 3"},
      {"\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 2, "
       "\"zero_hpz_partition_size\": 2}",
       "use one of the two"},
      {"\"zero_optimization\": true", "it must be an object, e.g. {\"stage\": 1}"},
      {"\"prescale_gradients\": true, \"gradient_predivide_factor\": 2", "use one of the two"},
      {"\"optimizer\": {\"type\": \"SGD\", \"params\": {\"nesterov\": true}}",
       "momentum above 0 (it is 0)"},
      {"\"optimizer\": {}", "optimizer.type is absent; there are Adam"},
      {"\"optimizer\": {\"type\": \"Adamm\"}", "optimizer.type is \"Adamm\"; there are"},
      {"\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {}}",
       "scheduler.params.total_num_steps is absent; this type needs it"},
      {"\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 9, "
       "\"warmup_num_steps\": 10}}",
       "the 9 steps must be at least the 10"},
      {"\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 10, "
       "\"warmup_num_steps\": 10}}",
       "the 10 steps must be above the 10"},
      {"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"last_batch_iteration\": 7}}",
       "loading its schedule's state"},
      {"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"cubic\"}}",
       "it must be one of log, linear"},
      {"\"communication_data_type\": \"int8\"", "it must be one of fp32, fp16, bf16"},
  };
  for (const Case& c : cases) {
    const Error error = ErrorOf([&] { Parse(c.members); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << c.members;
    EXPECT_THAT(error.message(), HasSubstr(c.expected));
  }
}

// ---- Damaged files ----

TEST(DeepSpeedConfig, FilesThatAreNone) {
  EXPECT_EQ(ErrorOf([] { LoadDeepSpeedConfig("/nowhere/ds.json", 1); }).code(),
            absl::StatusCode::kNotFound);
  const auto refusal = [](absl::string_view text) {
    return MessageOf([&] { ParseDeepSpeedConfig(text, 1); });
  };
  EXPECT_EQ(refusal(""), "line 1: this is no valid JSON");
  EXPECT_EQ(refusal("[]"), "line 1: the text is an array; it must be an object");
  EXPECT_EQ(refusal("{\n\"a\": 1,\n}"),
            "line 3: this is no valid JSON at '1,<U+000A>}'; JSON has no comments, no comma before "
            "a closing bracket, no NaN and no Infinity");
  EXPECT_THAT(refusal("{\"a\": 1 // rows\n}"), HasSubstr("JSON has no comments"));
  EXPECT_THAT(refusal("{\"a\": 1e999}"), HasSubstr("line 1: "));
  EXPECT_THAT(refusal("{\"a\": 99999999999999999999}"), HasSubstr("a is no key"));  // a double
  EXPECT_THAT(refusal("{\"a\": 18446744073709551615}"), HasSubstr("beyond 2^63"));
  EXPECT_THAT(refusal(std::string(2 << 20, ' ')), HasSubstr("at most 1048576 are read"));
  EXPECT_THAT(refusal(absl::StrCat("{\"a\": ", std::string(5000, '['))), HasSubstr("more than 16"));
  EXPECT_THAT(refusal("{\"a\": \"\xff\"}"), HasSubstr("no valid JSON"));
  std::string many = "{";
  for (int i = 0; i < 1001; ++i) absl::StrAppend(&many, "\n\"", i, "\": 0,");
  EXPECT_THAT(refusal(many), HasSubstr("line 1002: more than 1000 keys in one object"));
}

// Errors are one line, whatever is in the file.
TEST(DeepSpeedConfig, ControlCharactersAreShownAsEscapes) {
  EXPECT_EQ(Refusal("\"steps_per_print\": \"2\\n\\u001b[31m\""),
            "line 2: steps_per_print is \"2\\n\\x1b[31m\"; it must be a whole number, below 2^62");
  EXPECT_THAT(Refusal("\"\\n\": 1"), HasSubstr("line 2: \\n is no key"));
  EXPECT_THAT(Refusal("\"a\\n\": 1, \"a\\n\": 2"), HasSubstr("\"a\\n\" is there a second time"));
  EXPECT_EQ(Refusal("\"steps_per_print\": 1e19"),
            "line 2: steps_per_print is 1e+19; it must be a whole number, below 2^62");
}

// Every prefix is refused by name, and nothing else is thrown.
TEST(DeepSpeedConfig, TruncatedAtEveryByte) {
  for (const char* name : kFiles) {
    const std::string text = TextOf(name);
    const size_t end = text.rfind('}');
    for (size_t length = 0; length <= end; ++length) {
      const Error error =
          ErrorOf([&] { ParseDeepSpeedConfig(text.substr(0, length), 4, AllAutos()); });
      ASSERT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << name << length;
      ASSERT_THAT(error.message(), HasSubstr("no valid JSON")) << name << length;
    }
    EXPECT_EQ(ParseDeepSpeedConfig(text.substr(0, end + 1), 4, AllAutos()).ranks, 4);
  }
}

// Each value of each file in turn becomes one of another type: the text is read, or refused with
// its line and key.
TEST(DeepSpeedConfig, WrongTypesForEachKey) {
  int refused = 0;
  for (const char* name : kFiles) {
    std::vector<std::string> lines;
    std::string line;
    for (const char c : TextOf(name)) {
      if (c == '\n') {
        lines.push_back(std::exchange(line, ""));
      } else {
        line += c;
      }
    }
    for (size_t i = 0; i < lines.size(); ++i) {
      const size_t colon = lines[i].find(": ");
      if (colon == std::string::npos || lines[i].back() == '{') continue;
      for (const char* value : {"null", "true", "-1", "1.5", "\"text\"", "[]", "[1, 2, 3]", "{}",
                                "{\"enabled\": 7}", "1e300", "\"\""}) {
        std::string text;
        for (size_t j = 0; j < lines.size(); ++j) {
          const bool comma = lines[j].back() == ',';
          absl::StrAppend(
              &text,
              j != i ? lines[j]
                     : absl::StrCat(lines[j].substr(0, colon + 2), value, comma ? "," : ""),
              "\n");
        }
        try {
          ParseDeepSpeedConfig(text, 4, AllAutos());
        } catch (const Error& error) {
          ++refused;
          const size_t from = lines[i].find('"') + 1;
          const std::string key = lines[i].substr(from, lines[i].find('"', from) - from);
          // The key itself, or one that contradicts it now.
          EXPECT_TRUE(error.message().find(key) != std::string::npos ||
                      error.message().find("line ") != std::string::npos)
              << error.message();
        }
      }
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace lockstep::engine
