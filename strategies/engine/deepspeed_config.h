// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A training run's settings from a JSON file in DeepSpeed's vocabulary (ds_config.json):
//
//   DeepSpeedAutos autos;                       // what "auto" stands for in the file
//   autos.lr = 3e-4;
//   autos.train_micro_batch_size_per_gpu = 8;
//   DeepSpeedConfig config = LoadDeepSpeedConfig("ds_config.json", ranks, autos);
//   for (const std::string& key : config.ignored) LOG(INFO) << "ignored: " << key;
//   optim::Schedule schedule(&optimizer, MakeSchedule(*config.scheduler));
//
// Names, meanings and defaults are DeepSpeed's, with its surprises: an optimizer of type "Adam" is
// AdamW unless "adam_w_mode" is false, and neither decays weights unless told to. Pure: nothing
// here communicates or looks at the machine.
//
// What cannot change results (logging, profiling, hints of speed that have no meaning here) goes
// onto `ignored`; what would change them and does not exist here is refused, with what to use; all
// other keys that are not known are refused with the nearest that is. Values out of range,
// contradictions and keys that are there twice are refused with their line.
#ifndef LOCKSTEP_STRATEGIES_ENGINE_DEEPSPEED_CONFIG_H_
#define LOCKSTEP_STRATEGIES_ENGINE_DEEPSPEED_CONFIG_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/nn/optim/adagrad.h"
#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/rmsprop.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/nn/optim/schedules/warmup.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::engine {

// What the program gives for keys that are "auto" in the file, as Hugging Face's Trainer does from
// its arguments. A key that is "auto" without its value here is an error that names both; those of
// the batch may be left out where the others give them. Keys of no field below cannot be "auto".
struct DeepSpeedAutos {
  std::optional<int64_t> train_batch_size;
  std::optional<int64_t> train_micro_batch_size_per_gpu;
  std::optional<int64_t> gradient_accumulation_steps;
  std::optional<double> gradient_clipping;
  std::optional<bool> fp16_enabled;
  std::optional<bool> bf16_enabled;
  // optimizer.params; `lr` is also warmup_max_lr's.
  std::optional<double> lr;
  std::optional<double> beta1, beta2;  // "betas"
  std::optional<double> eps;
  std::optional<double> weight_decay;
  std::optional<double> momentum;
  // scheduler.params; "warmup_min_lr" is 0.
  std::optional<int64_t> warmup_num_steps;
  std::optional<int64_t> total_num_steps;
  // Of the model, h: reduce_bucket_size is h * h, stage3_prefetch_bucket_size 0.9 * h * h,
  // stage3_param_persistence_threshold 10 * h.
  std::optional<int64_t> hidden_size;
  std::optional<bool> gather_16bit_weights_on_model_save;
};

enum class OffloadDevice : uint8_t { kNone, kCpu };

// "zero_optimization". Sizes are in elements.
struct DeepSpeedZero {
  int64_t stage = 0;  // shards 1: optimizer state, 2: and gradients, 3: and parameters
  OffloadDevice offload_optimizer = OffloadDevice::kNone;  // from stage 1
  OffloadDevice offload_param = OffloadDevice::kNone;      // stage 3
  bool overlap_comm = false;                               // in the file's absence: stage 3
  bool contiguous_gradients = true;
  bool round_robin_gradients = false;
  int64_t reduce_bucket_size = 500'000'000;
  int64_t allgather_bucket_size = 500'000'000;
  int64_t sub_group_size = 1'000'000'000;
  int64_t stage3_prefetch_bucket_size = 50'000'000;
  // DeepSpeed keeps parameters below this size whole.
  int64_t stage3_param_persistence_threshold = 100'000;
  bool stage3_gather_16bit_weights_on_model_save = false;
  // Ranks that share a second, nearer copy of the parameters. All ranks, or more, are 1: none.
  int64_t zero_hpz_partition_size = 1;
  int64_t mics_shard_size = -1;  // ranks that shard; -1: all
};

// "fp16"; all but `enabled` steer the loss scale (amp/scaler/grad_scaler.h).
struct DeepSpeedFp16 {
  bool enabled = false;
  bool auto_cast = false;  // of the model's inputs
  double loss_scale = 0;   // 0: dynamic
  int64_t initial_scale_power = 16;
  int64_t loss_scale_window = 1000;
  int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
};

using DeepSpeedOptimizer = std::variant<optim::AdamOptions, optim::AdamWOptions, optim::SgdOptions,
                                        optim::AdagradOptions, optim::RmspropOptions>;

using DeepSpeedScheduler =
    std::variant<optim::WarmupLrOptions, optim::WarmupDecayLrOptions, optim::WarmupCosineLrOptions>;

// "activation_checkpointing": read, and without effect. A program applies checkpoint/ by itself.
struct DeepSpeedActivationCheckpointing {
  bool partition_activations = false;  // over the ranks of model parallelism
  bool cpu_checkpointing = false;
  std::optional<int64_t> number_checkpoints;
};

struct DeepSpeedConfig {
  // train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks.
  int64_t train_batch_size = 0;
  int64_t train_micro_batch_size_per_gpu = 0;
  int64_t gradient_accumulation_steps = 0;
  int64_t ranks = 0;

  double gradient_clipping = 0;  // the largest norm; 0: none
  // Gradients are divided before they are summed: by the number of ranks, or by this factor (and by
  // the rest afterwards).
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1;
  std::optional<DType> communication_data_type;  // of gradients; absent: their own

  DeepSpeedFp16 fp16;
  bool bf16_enabled = false;
  DeepSpeedZero zero;
  std::optional<DeepSpeedOptimizer> optimizer;
  std::optional<DeepSpeedScheduler> scheduler;
  std::optional<DeepSpeedActivationCheckpointing> activation_checkpointing;

  bool wall_clock_breakdown = false;
  int64_t steps_per_print = 10;

  // Paths of keys without effect on results here (some are read above, and checked), in the order
  // in which sections are read, for the program to print once: "flops_profiler",
  // "zero_optimization.override_module_apply".
  std::vector<std::string> ignored;
};

// `ranks`: those that divide a batch (the data-parallel group). Throws InvalidArgument (with the
// line) for text that is not as said above, `ranks` < 1, and an "auto" without its value;
// Unimplemented for features that do not exist here.
DeepSpeedConfig ParseDeepSpeedConfig(absl::string_view json, int64_t ranks,
                                     const DeepSpeedAutos& autos = {});

// The same of a file, whose name is put before each message. Throws NotFound when it cannot be
// read.
DeepSpeedConfig LoadDeepSpeedConfig(const std::string& path, int64_t ranks,
                                    const DeepSpeedAutos& autos = {});

// The settings as resolved, in DeepSpeed's vocabulary, without keys that are not read: JSON that
// ParseDeepSpeedConfig reads back as the same for the same ranks.
std::string ToString(const DeepSpeedConfig& config);

optim::ScheduleFunction MakeSchedule(const DeepSpeedScheduler& scheduler);

}  // namespace lockstep::engine

#endif  // LOCKSTEP_STRATEGIES_ENGINE_DEEPSPEED_CONFIG_H_
