// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/rmsprop.h"

#include "lockstep/autograd/grad_mode.h"
#include "lockstep/nn/optim/option_checks.h"
#include "lockstep/tensor/ops/update.h"

namespace lockstep::optim {
namespace {

enum StateKind : size_t { kSquareAvg = 0, kMomentumBuffer = 1, kGradAvg = 2 };

void Validate(const RmspropOptions& options) {
  const char* const call = "Rmsprop";
  RequireNotNegative(call, "lr", options.lr);
  RequireFraction(call, "alpha", options.alpha);
  RequireNotNegative(call, "epsilon", options.epsilon);
  RequireNotNegative(call, "weight_decay", options.weight_decay);
  RequireNotNegative(call, "momentum", options.momentum);
}

}  // namespace

Rmsprop::Rmsprop(const NamedTensors& parameters, const RmspropOptions& options)
    : Rmsprop(Groups{{parameters, options}}) {}

Rmsprop::Rmsprop(const std::vector<ParameterGroup<RmspropOptions>>& groups)
    : OptimizerOf("Rmsprop", {"square_avg", "momentum_buffer", "grad_avg"}, groups, Validate) {}

bool Rmsprop::NeedsState(size_t kind, size_t group) const {
  if (kind == kMomentumBuffer) return *Momentum(group) > 0;
  return kind == kSquareAvg || options(group).centered;
}

void Rmsprop::Step() {
  autograd::NoGradScope no_grad;
  const std::vector<RmspropOptions> current = CurrentOptions();
  for (const Batch& batch : Batches(/*same_step=*/false)) {
    const RmspropOptions& options = current[batch.group];
    RmspropStep(batch.parameters, batch.gradients, batch.State(kSquareAvg),
                options.momentum > 0 ? batch.State(kMomentumBuffer) : std::vector<Tensor>(),
                options.centered ? batch.State(kGradAvg) : std::vector<Tensor>(),
                {.lr = options.lr,
                 .alpha = options.alpha,
                 .epsilon = options.epsilon,
                 .weight_decay = options.weight_decay,
                 .momentum = options.momentum,
                 .centered = options.centered,
                 .maximize = options.maximize});
    for (Slot* slot : batch.slots) ++slot->step;
  }
}

}  // namespace lockstep::optim
