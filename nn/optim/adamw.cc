// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/adamw.h"

namespace lockstep::optim {
namespace {

void Validate(const AdamWOptions& options) { ValidateAdamOptions("AdamW", options); }

}  // namespace

AdamW::AdamW(const NamedTensors& parameters, const AdamWOptions& options)
    : AdamW(Groups{{parameters, options}}) {}

AdamW::AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups)
    : AdamFamily("AdamW", groups, Validate, /*decoupled_decay=*/true) {}

}  // namespace lockstep::optim
