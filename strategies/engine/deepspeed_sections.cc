// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/engine/deepspeed_sections.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"

namespace lockstep::engine::internal {
namespace {

// Beta values and momenta lie below 1.
constexpr double kBelow1 = 1 - 1e-12;

// The "type" of `section`: an index into `here`. `elsewhere` are DeepSpeed's others.
size_t TypeOf(JsonSection& section, const std::vector<std::string>& here,
              const std::vector<std::string>& elsewhere) {
  const JsonNode* node = section.Find("type");
  const std::string list = absl::StrCat("there are ", absl::StrJoin(here, ", "));
  if (node != nullptr && node->kind == JsonNode::Kind::kString) {
    const auto is_type = [&](const std::string& name) {
      return absl::EqualsIgnoreCase(name, node->text);
    };
    const auto found = std::find_if(here.begin(), here.end(), is_type);
    if (found != here.end()) return static_cast<size_t>(found - here.begin());
    if (std::any_of(elsewhere.begin(), elsewhere.end(), is_type)) {
      throw UnimplementedError(
          section.Message("type", absl::StrCat("it does not exist here; ", list)));
    }
  }
  throw InvalidArgumentError(section.Message("type", list));
}

void ReadBetas(JsonSection& params, const DeepSpeedAutos& autos, double* beta1, double* beta2) {
  const JsonNode* node = params.Find("betas");
  if (node == nullptr) return;
  if (node->kind == JsonNode::Kind::kString && node->text == "auto") {
    if (!autos.beta1.has_value() || !autos.beta2.has_value()) {
      throw InvalidArgumentError(params.Message(
          "betas", "write two numbers, or give the program's in DeepSpeedAutos::beta1 and beta2"));
    }
    *beta1 = *autos.beta1;
    *beta2 = *autos.beta2;
  } else {
    const auto is_number = [](const JsonNode& element) {
      return element.kind == JsonNode::Kind::kReal || element.kind == JsonNode::Kind::kInteger;
    };
    if (node->kind != JsonNode::Kind::kArray || node->elements.size() != 2 ||
        !is_number(node->elements[0]) || !is_number(node->elements[1])) {
      throw InvalidArgumentError(params.Message("betas", "it must be an array of two numbers"));
    }
    *beta1 = node->elements[0].real;
    *beta2 = node->elements[1].real;
  }
  for (const double beta : {*beta1, *beta2}) {
    if (beta >= 0 && beta < 1) continue;
    throw InvalidArgumentError(
        params.Message("betas", absl::StrCat(beta, " is not within [0, 1)")));
  }
}

// What all optimizers have.
void ReadCommon(JsonSection& params, const DeepSpeedAutos& autos, double* lr,
                double* weight_decay) {
  params.Real("lr", lr, 0, std::numeric_limits<double>::max(),
              AutoValue<double>{"DeepSpeedAutos::lr", autos.lr});
  params.Real("weight_decay", weight_decay, 0, std::numeric_limits<double>::max(),
              AutoValue<double>{"DeepSpeedAutos::weight_decay", autos.weight_decay});
  params.Off("max_grad_norm", "write it as gradient_clipping beside the optimizer");
  params.Ignored({"foreach", "fused", "set_grad_none", "capturable"});
}

void ReadEps(JsonSection& params, const DeepSpeedAutos& autos, double* eps) {
  params.Real("eps", eps, 0, std::numeric_limits<double>::max(),
              AutoValue<double>{"DeepSpeedAutos::eps", autos.eps});
}

void ReadMomentum(JsonSection& params, const DeepSpeedAutos& autos, double* momentum) {
  params.Real("momentum", momentum, 0, std::numeric_limits<double>::max(),
              AutoValue<double>{"DeepSpeedAutos::momentum", autos.momentum});
}

DeepSpeedOptimizer ReadAdam(JsonSection& params, const DeepSpeedAutos& autos, bool always_w) {
  bool torch_adam = false, decoupled = true;
  params.Bool("torch_adam", &torch_adam);
  params.Bool("adam_w_mode", &decoupled);
  decoupled |= always_w;
  params.Only("bias_correction", true, "moments are always corrected here");
  params.Only("fp32_optimizer_states", true, "the state of optimizers is float32 here");
  optim::AdamWOptions w;
  // PyTorch's own AdamW decays unless told not to, DeepSpeed's does not.
  if (!torch_adam || !decoupled) w.weight_decay = 0;
  ReadCommon(params, autos, &w.lr, &w.weight_decay);
  ReadBetas(params, autos, &w.beta1, &w.beta2);
  ReadEps(params, autos, &w.epsilon);
  params.Bool("amsgrad", &w.amsgrad);
  params.Bool("maximize", &w.maximize);
  if (decoupled) return w;
  return optim::AdamOptions{.lr = w.lr,
                            .beta1 = w.beta1,
                            .beta2 = w.beta2,
                            .epsilon = w.epsilon,
                            .weight_decay = w.weight_decay,
                            .amsgrad = w.amsgrad,
                            .maximize = w.maximize};
}

DeepSpeedOptimizer ReadSgd(JsonSection& params, const DeepSpeedAutos& autos) {
  optim::SgdOptions options;
  ReadCommon(params, autos, &options.lr, &options.weight_decay);
  ReadMomentum(params, autos, &options.momentum);
  params.Real("dampening", &options.dampening, 0);
  params.Bool("nesterov", &options.nesterov);
  params.Bool("maximize", &options.maximize);
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    throw InvalidArgumentError(params.Message(
        "nesterov", absl::StrCat("it needs a momentum above 0 (it is ", options.momentum,
                                 ") and no dampening (it is ", options.dampening, ")")));
  }
  return options;
}

DeepSpeedOptimizer ReadAdagrad(JsonSection& params, const DeepSpeedAutos& autos) {
  optim::AdagradOptions options;
  ReadCommon(params, autos, &options.lr, &options.weight_decay);
  ReadEps(params, autos, &options.epsilon);
  params.Real("lr_decay", &options.lr_decay, 0);
  params.Real("initial_accumulator_value", &options.initial_accumulator_value, 0);
  params.Bool("maximize", &options.maximize);
  return options;
}

DeepSpeedOptimizer ReadRmsprop(JsonSection& params, const DeepSpeedAutos& autos) {
  optim::RmspropOptions options;
  ReadCommon(params, autos, &options.lr, &options.weight_decay);
  ReadEps(params, autos, &options.epsilon);
  ReadMomentum(params, autos, &options.momentum);
  params.Real("alpha", &options.alpha, 0, kBelow1);
  params.Bool("centered", &options.centered);
  params.Bool("maximize", &options.maximize);
  return options;
}

// ---- Schedulers ----

void ReadWarmup(JsonSection& params, const DeepSpeedAutos& autos, int64_t* steps,
                optim::WarmupType* type) {
  params.Integer("warmup_num_steps", steps, 0, std::numeric_limits<int64_t>::max(),
                 AutoValue<int64_t>{"DeepSpeedAutos::warmup_num_steps", autos.warmup_num_steps});
  size_t index = 0;
  params.Choice("warmup_type", &index, {"log", "linear"});
  *type = index == 0 ? optim::WarmupType::kLog : optim::WarmupType::kLinear;
  int64_t last = -1;
  params.Integer("last_batch_iteration", &last, -1);
  if (last != -1) {
    throw InvalidArgumentError(params.Message(
        "last_batch_iteration", "a run goes on by loading its schedule's state; leave it out"));
  }
}

void ReadWarmupRates(JsonSection& params, const DeepSpeedAutos& autos, double* low, double* high) {
  params.Real("warmup_min_lr", low, 0, std::numeric_limits<double>::max(),
              AutoValue<double>{"DeepSpeedAutos", 0.0});
  params.Real("warmup_max_lr", high, 0, std::numeric_limits<double>::max(),
              AutoValue<double>{"DeepSpeedAutos::lr", autos.lr});
}

// Above those of the warm-up, or as many.
int64_t ReadTotal(JsonSection& params, const DeepSpeedAutos& autos, int64_t warmup, bool above) {
  int64_t total = 0;
  params.Integer("total_num_steps", &total, 1, std::numeric_limits<int64_t>::max(),
                 AutoValue<int64_t>{"DeepSpeedAutos::total_num_steps", autos.total_num_steps});
  if (total == 0) {
    throw InvalidArgumentError(params.Message("total_num_steps", "this type needs it"));
  }
  const int64_t least = std::max<int64_t>(2, warmup);
  if (total < least || (above && total == least)) {
    throw InvalidArgumentError(
        params.Message("total_num_steps",
                       absl::StrCat("the ", total, " steps must be ", above ? "above" : "at least",
                                    " the ", least, " of the warm-up, which has 2 or more")));
  }
  return total;
}

}  // namespace

std::optional<DeepSpeedOptimizer> ReadOptimizer(JsonSection& root, const DeepSpeedAutos& autos,
                                                std::vector<std::string>* ignored) {
  const JsonNode* node = root.Find("optimizer");
  if (node == nullptr) return std::nullopt;
  JsonSection section(node, "optimizer", ignored);
  const size_t type = TypeOf(section, {"Adam", "AdamW", "SGD", "Adagrad", "RMSprop"},
                             {"Lamb", "Lion", "OneBitAdam", "OneBitLamb", "ZeroOneAdam", "MuAdam",
                              "MuAdamW", "MuSGD", "Muon", "Adadelta", "Adamax", "NAdam", "RAdam",
                              "ASGD", "LBFGS", "Rprop", "SparseAdam", "Adafactor"});
  JsonSection params(section.Find("params"), "optimizer.params", ignored);
  section.Ignored({"legacy_fusion"});
  section.Finish();
  DeepSpeedOptimizer result;
  switch (type) {
    case 0:
    case 1:
      result = ReadAdam(params, autos, /*always_w=*/type == 1);
      break;
    case 2:
      result = ReadSgd(params, autos);
      break;
    case 3:
      result = ReadAdagrad(params, autos);
      break;
    default:
      result = ReadRmsprop(params, autos);
  }
  params.Finish();
  return result;
}

std::optional<DeepSpeedScheduler> ReadScheduler(JsonSection& root, const DeepSpeedAutos& autos,
                                                std::vector<std::string>* ignored) {
  const JsonNode* node = root.Find("scheduler");
  if (node == nullptr) return std::nullopt;
  JsonSection section(node, "scheduler", ignored);
  const size_t type =
      TypeOf(section, {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"}, {"LRRangeTest", "OneCycle"});
  JsonSection params(section.Find("params"), "scheduler.params", ignored);
  section.Finish();
  DeepSpeedScheduler result;
  if (type == 0) {
    optim::WarmupLrOptions options;
    ReadWarmup(params, autos, &options.warmup_num_steps, &options.warmup_type);
    ReadWarmupRates(params, autos, &options.warmup_min_lr, &options.warmup_max_lr);
    // Hugging Face's files give it for all types.
    params.Ignored({"total_num_steps"});
    result = options;
  } else if (type == 1) {
    optim::WarmupDecayLrOptions options;
    ReadWarmup(params, autos, &options.warmup_num_steps, &options.warmup_type);
    ReadWarmupRates(params, autos, &options.warmup_min_lr, &options.warmup_max_lr);
    options.total_num_steps = ReadTotal(params, autos, options.warmup_num_steps, /*above=*/false);
    result = options;
  } else {
    optim::WarmupCosineLrOptions options;
    ReadWarmup(params, autos, &options.warmup_num_steps, &options.warmup_type);
    params.Real("warmup_min_ratio", &options.warmup_min_ratio, 0, 1);
    params.Real("cos_min_ratio", &options.cos_min_ratio, 0, 1);
    options.total_num_steps = ReadTotal(params, autos, options.warmup_num_steps, /*above=*/true);
    result = options;
  }
  params.Finish();
  return result;
}

}  // namespace lockstep::engine::internal
