// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/adam.h"

namespace lockstep::optim {
namespace {

void Validate(const AdamOptions& options) { ValidateAdamOptions("Adam", options); }

}  // namespace

Adam::Adam(const NamedTensors& parameters, const AdamOptions& options)
    : Adam(Groups{{parameters, options}}) {}

Adam::Adam(const std::vector<ParameterGroup<AdamOptions>>& groups)
    : AdamFamily("Adam", groups, Validate, /*decoupled_decay=*/false) {}

}  // namespace lockstep::optim
