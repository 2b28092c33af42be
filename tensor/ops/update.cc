// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/update.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/op_util.h"

namespace lockstep {
namespace {

struct NamedList {
  const char* name;
  TensorSpan tensors;
};

// Lists of one length, all tensors defined and on one device. Shapes and dtypes are the rule's
// part.
void RequireLists(const char* call, std::initializer_list<NamedList> lists) {
  const NamedList& first = *lists.begin();
  for (const NamedList& list : lists) {
    if (list.tensors.size() != first.tensors.size()) {
      ops::Refuse(call, list.name, " has ", list.tensors.size(), " tensors and ", first.name,
                  " has ", first.tensors.size(), "; each parameter needs one of each");
    }
    ops::RequireDefined(list.tensors, call, list.name);
  }
  for (const NamedList& list : lists) {
    for (size_t i = 0; i < list.tensors.size(); ++i) {
      if (list.tensors[i].device() == first.tensors[0].device()) continue;
      ops::Refuse(call, list.name, "[", i, "] is on ", ToString(list.tensors[i].device()), " and ",
                  first.name, "[0] on ", ToString(first.tensors[0].device()),
                  "; call once for each device");
    }
  }
}

std::vector<Tensor> Join(std::initializer_list<TensorSpan> lists) {
  std::vector<Tensor> joined;
  for (const TensorSpan list : lists) joined.insert(joined.end(), list.begin(), list.end());
  return joined;
}

void RequireNotNegative(const char* call, const char* name, double value) {
  if (!(value >= 0) || std::isinf(value)) {
    ops::Refuse(call, name, " ", value, " must be a number that is not negative");
  }
}

void RequireBeta(const char* call, const char* name, double value, bool includes_one = false) {
  if (!(value >= 0 && (value < 1 || (includes_one && value == 1)))) {
    ops::Refuse(call, name, " ", value, " is not in [0, 1", includes_one ? "]" : ")");
  }
}

// A list that is given when `wanted`, and replaced by undefined tensors else: the op gets a list of
// that length anyway.
class OptionalList {
 public:
  OptionalList(const char* call, const char* name, TensorSpan tensors, size_t count, bool wanted,
               absl::string_view condition)
      : none_(wanted ? 0 : count), tensors_(wanted ? tensors : TensorSpan(none_)) {
    if (!wanted && !tensors.empty()) {
      ops::Refuse(call, tensors.size(), " ", name, " are given, but ", condition,
                  "; pass an empty list");
    }
  }
  TensorSpan tensors() const { return tensors_; }

 private:
  std::vector<Tensor> none_;
  TensorSpan tensors_;
};

}  // namespace

void AdamStep(TensorSpan parameters, TensorSpan gradients, TensorSpan exp_avgs,
              TensorSpan exp_avg_sqs, TensorSpan max_exp_avg_sqs, const AdamStepOptions& options) {
  const char* const call = "AdamStep";
  RequireNotNegative(call, "lr", options.lr);
  RequireBeta(call, "beta1", options.beta1);
  RequireBeta(call, "beta2", options.beta2);
  RequireNotNegative(call, "epsilon", options.epsilon);
  RequireNotNegative(call, "weight_decay", options.weight_decay);
  if (options.step < 1) ops::Refuse(call, "step ", options.step, " must be at least 1");
  const OptionalList largest(call, "max_exp_avg_sqs", max_exp_avg_sqs, parameters.size(),
                             options.amsgrad, "amsgrad is off");
  RequireLists(call, {{"parameters", parameters},
                      {"gradients", gradients},
                      {"exp_avgs", exp_avgs},
                      {"exp_avg_sqs", exp_avg_sqs},
                      {"max_exp_avg_sqs", options.amsgrad ? max_exp_avg_sqs : parameters}});
  if (parameters.empty()) return;
  AdamAttributes attributes;
  attributes.decoupled_decay = options.decoupled_decay;
  attributes.amsgrad = options.amsgrad;
  attributes.maximize = options.maximize;
  const std::vector<Tensor> inputs =
      Join({parameters, gradients, exp_avgs, exp_avg_sqs, largest.tensors()});
  const Scalars scalars = {options.lr,      options.beta1,        options.beta2,
                           options.epsilon, options.weight_decay, options.step};
  Dispatch({OpId::kAdamStep, inputs, scalars, attributes});
}

void SgdStep(TensorSpan parameters, TensorSpan gradients, TensorSpan momenta,
             const SgdStepOptions& options) {
  const char* const call = "SgdStep";
  RequireNotNegative(call, "lr", options.lr);
  RequireNotNegative(call, "momentum", options.momentum);
  RequireNotNegative(call, "weight_decay", options.weight_decay);
  if (!std::isfinite(options.dampening)) {
    ops::Refuse(call, "dampening ", options.dampening, " is not a finite number");
  }
  const bool use_momentum = options.momentum > 0;
  if (options.nesterov && (!use_momentum || options.dampening != 0)) {
    ops::Refuse(call, "nesterov needs a momentum above 0 and no dampening; momentum is ",
                options.momentum, " and dampening ", options.dampening);
  }
  const OptionalList buffers(call, "momenta", momenta, parameters.size(), use_momentum,
                             "momentum is 0");
  RequireLists(call, {{"parameters", parameters},
                      {"gradients", gradients},
                      {"momenta", use_momentum ? momenta : parameters}});
  if (parameters.empty()) return;
  SgdAttributes attributes;
  attributes.use_momentum = use_momentum;
  attributes.first_step = options.first_step;
  attributes.nesterov = options.nesterov;
  attributes.maximize = options.maximize;
  const std::vector<Tensor> inputs = Join({parameters, gradients, buffers.tensors()});
  const Scalars scalars = {options.lr, options.momentum, options.dampening, options.weight_decay};
  Dispatch({OpId::kSgdStep, inputs, scalars, attributes});
}

void RmspropStep(TensorSpan parameters, TensorSpan gradients, TensorSpan square_avgs,
                 TensorSpan momenta, TensorSpan grad_avgs, const RmspropStepOptions& options) {
  const char* const call = "RmspropStep";
  RequireNotNegative(call, "lr", options.lr);
  RequireBeta(call, "alpha", options.alpha, /*includes_one=*/true);
  RequireNotNegative(call, "epsilon", options.epsilon);
  RequireNotNegative(call, "weight_decay", options.weight_decay);
  RequireNotNegative(call, "momentum", options.momentum);
  const bool use_momentum = options.momentum > 0;
  const OptionalList buffers(call, "momenta", momenta, parameters.size(), use_momentum,
                             "momentum is 0");
  const OptionalList means(call, "grad_avgs", grad_avgs, parameters.size(), options.centered,
                           "centered is off");
  RequireLists(call, {{"parameters", parameters},
                      {"gradients", gradients},
                      {"square_avgs", square_avgs},
                      {"momenta", use_momentum ? momenta : parameters},
                      {"grad_avgs", options.centered ? grad_avgs : parameters}});
  if (parameters.empty()) return;
  RmspropAttributes attributes;
  attributes.use_momentum = use_momentum;
  attributes.centered = options.centered;
  attributes.maximize = options.maximize;
  const std::vector<Tensor> inputs =
      Join({parameters, gradients, square_avgs, buffers.tensors(), means.tensors()});
  const Scalars scalars = {options.lr, options.alpha, options.epsilon, options.weight_decay,
                           options.momentum};
  Dispatch({OpId::kRmspropStep, inputs, scalars, attributes});
}

void AdagradStep(TensorSpan parameters, TensorSpan gradients, TensorSpan sums,
                 const AdagradStepOptions& options) {
  const char* const call = "AdagradStep";
  RequireNotNegative(call, "lr", options.lr);
  RequireNotNegative(call, "lr_decay", options.lr_decay);
  RequireNotNegative(call, "epsilon", options.epsilon);
  RequireNotNegative(call, "weight_decay", options.weight_decay);
  if (options.step < 1) ops::Refuse(call, "step ", options.step, " must be at least 1");
  RequireLists(call, {{"parameters", parameters}, {"gradients", gradients}, {"sums", sums}});
  if (parameters.empty()) return;
  AdagradAttributes attributes;
  attributes.maximize = options.maximize;
  const std::vector<Tensor> inputs = Join({parameters, gradients, sums});
  const Scalars scalars = {options.lr, options.lr_decay, options.epsilon, options.weight_decay,
                           options.step};
  Dispatch({OpId::kAdagradStep, inputs, scalars, attributes});
}

void LerpInto(TensorSpan destinations, TensorSpan sources, double weight) {
  const char* const call = "LerpInto";
  RequireBeta(call, "weight", weight, /*includes_one=*/true);
  RequireLists(call, {{"destinations", destinations}, {"sources", sources}});
  if (destinations.empty()) return;
  const std::vector<Tensor> inputs = Join({destinations, sources});
  Dispatch({OpId::kLerpInto, inputs, Scalars{weight}, EmptyAttributes()});
}

Tensor GlobalNorm(TensorSpan tensors, NormKind kind) {
  if (tensors.empty()) return Zeros({});
  RequireLists("GlobalNorm", {{"tensors", tensors}});
  NormAttributes attributes;
  attributes.infinity = kind == NormKind::kInfinity;
  return Dispatch1(OpId::kGlobalNorm, tensors, {}, attributes);
}

void UnscaleAndCheck(TensorSpan gradients, const Tensor& found_inf, double inverse_scale) {
  const char* const call = "UnscaleAndCheck";
  ops::RequireDefined(found_inf, call, "found_inf");
  if (!std::isfinite(inverse_scale)) {
    ops::Refuse(call, "inverse_scale ", inverse_scale, " is not a finite number");
  }
  RequireLists(call, {{"gradients", gradients}});
  if (gradients.empty()) return;
  const std::vector<Tensor> inputs = Join({gradients, TensorSpan(&found_inf, 1)});
  Dispatch({OpId::kUnscaleAndCheck, inputs, Scalars{inverse_scale}, EmptyAttributes()});
}

void ClipByNorm(TensorSpan gradients, const Tensor& norm, double max_norm) {
  ops::RequireDefined(norm, "ClipByNorm", "norm");
  if (!(max_norm >= 0)) {
    ops::Refuse("ClipByNorm", "max_norm ", max_norm, " must be a number that is not negative");
  }
  RequireLists("ClipByNorm", {{"gradients", gradients}});
  if (gradients.empty()) return;
  const std::vector<Tensor> inputs = Join({gradients, TensorSpan(&norm, 1)});
  Dispatch({OpId::kClipByNorm, inputs, Scalars{max_norm}, EmptyAttributes()});
}

}  // namespace lockstep
