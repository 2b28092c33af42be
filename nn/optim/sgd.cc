// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/sgd.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/optim/option_checks.h"
#include "lockstep/tensor/ops/update.h"

namespace lockstep::optim {
namespace {

void Validate(const SgdOptions& options) {
  const char* const call = "Sgd";
  RequireNotNegative(call, "lr", options.lr);
  RequireNotNegative(call, "momentum", options.momentum);
  RequireNotNegative(call, "weight_decay", options.weight_decay);
  RequireOption(std::isfinite(options.dampening), call, "dampening", options.dampening,
                "it is finite");
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    throw InvalidArgumentError(absl::StrCat("Sgd: nesterov with momentum ", options.momentum,
                                            " and dampening ", options.dampening,
                                            "; it needs momentum above 0 and dampening 0"));
  }
}

}  // namespace

Sgd::Sgd(const NamedTensors& parameters, const SgdOptions& options)
    : Sgd(Groups{{parameters, options}}) {}

Sgd::Sgd(const std::vector<ParameterGroup<SgdOptions>>& groups)
    : OptimizerOf("Sgd", {"momentum_buffer"}, groups, Validate) {}

void Sgd::Step() {
  autograd::NoGradScope no_grad;
  const std::vector<SgdOptions> current = CurrentOptions();
  for (const Batch& batch : Batches(/*same_step=*/false)) {
    const SgdOptions& options = current[batch.group];
    const bool use_momentum = options.momentum != 0;
    SgdStep(batch.parameters, batch.gradients,
            use_momentum ? batch.State(0) : std::vector<Tensor>(),
            {.lr = options.lr,
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
