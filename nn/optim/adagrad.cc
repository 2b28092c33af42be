// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/adagrad.h"

#include "lockstep/autograd/grad_mode.h"
#include "lockstep/nn/optim/option_checks.h"
#include "lockstep/tensor/ops/update.h"

namespace lockstep::optim {
namespace {

void Validate(const AdagradOptions& options) {
  const char* const call = "Adagrad";
  RequireNotNegative(call, "lr", options.lr);
  RequireNotNegative(call, "lr_decay", options.lr_decay);
  RequireNotNegative(call, "weight_decay", options.weight_decay);
  RequireNotNegative(call, "initial_accumulator_value", options.initial_accumulator_value);
  RequireNotNegative(call, "epsilon", options.epsilon);
}

}  // namespace

Adagrad::Adagrad(const NamedTensors& parameters, const AdagradOptions& options)
    : Adagrad(Groups{{parameters, options}}) {}

Adagrad::Adagrad(const std::vector<ParameterGroup<AdagradOptions>>& groups)
    : OptimizerOf("Adagrad", {"sum"}, groups, Validate) {}

void Adagrad::Step() {
  autograd::NoGradScope no_grad;
  const std::vector<AdagradOptions> current = CurrentOptions();
  for (const Batch& batch : Batches(/*same_step=*/true)) {
    const AdagradOptions& options = current[batch.group];
    AdagradStep(batch.parameters, batch.gradients,
                batch.State(0, options.initial_accumulator_value),
                {.lr = options.lr,
                 .lr_decay = options.lr_decay,
                 .epsilon = options.epsilon,
                 .weight_decay = options.weight_decay,
                 .step = batch.step + 1,
                 .maximize = options.maximize});
    for (Slot* slot : batch.slots) ++slot->step;
  }
}

}  // namespace lockstep::optim
