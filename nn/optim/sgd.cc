// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/sgd.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/update.h"

namespace lockstep::optim {
namespace {

void Validate(const SgdOptions& o) {
  const auto bad = [](double value) { return !(value >= 0) || std::isinf(value); };
  if (bad(o.lr) || bad(o.momentum) || bad(o.weight_decay) || !std::isfinite(o.dampening)) {
    throw InvalidArgumentError(absl::StrCat(
        "Sgd: lr ", o.lr, ", momentum ", o.momentum, ", dampening ", o.dampening, ", weight_decay ",
        o.weight_decay, "; they are finite, and all but dampening not negative"));
  }
  if (o.nesterov && (o.momentum == 0 || o.dampening != 0)) {
    throw InvalidArgumentError(absl::StrCat("Sgd: nesterov with momentum ", o.momentum,
                                            " and dampening ", o.dampening,
                                            "; it needs momentum above 0 and dampening 0"));
  }
}

}  // namespace

Sgd::Sgd(const NamedTensors& parameters, const SgdOptions& options)
    : Sgd(std::vector<ParameterGroup<SgdOptions>>{{parameters, options}}) {}

Sgd::Sgd(const std::vector<ParameterGroup<SgdOptions>>& groups)
    : Optimizer("Sgd", {"momentum_buffer"}) {
  for (const auto& group : groups) {
    Validate(group.options);
    AddParameters(group.parameters, options_.size());
    options_.push_back(group.options);
  }
  CheckNotEmpty();
}

SgdOptions& Sgd::options(size_t group) {
  if (group >= options_.size()) {
    throw OutOfRangeError(absl::StrCat("Sgd: group ", group, " of ", options_.size()));
  }
  return options_[group];
}

double Sgd::LearningRate(size_t group) const {
  return const_cast<Sgd*>(this)->options(group).lr * learning_rate_factor();
}

void Sgd::Step() {
  autograd::NoGradScope no_grad;
  for (const SgdOptions& options : options_) Validate(options);
  for (const Batch& batch : Batches(/*same_step=*/false)) {
    const SgdOptions& options = options_[batch.group];
    const bool use_momentum = options.momentum != 0;
    std::vector<Tensor> momenta;
    if (use_momentum) {
      for (Slot* slot : batch.slots) EnsureState(*slot);
      momenta = batch.State(0);
    }
    SgdStep(batch.parameters, batch.gradients, momenta,
            {.lr = LearningRate(batch.group),
             .momentum = options.momentum,
             .dampening = options.dampening,
             .weight_decay = options.weight_decay,
             .nesterov = options.nesterov,
             .maximize = options.maximize,
             .first_step = use_momentum && batch.step == 0});
    if (use_momentum) {
      for (Slot* slot : batch.slots) ++slot->step;
    }
  }
}

}  // namespace lockstep::optim
