// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The optimizer of train_gpt: AdamW with weight decay for matrices only.
#ifndef LOCKSTEP_EXAMPLES_ADAMW_GROUPS_H_
#define LOCKSTEP_EXAMPLES_ADAMW_GROUPS_H_

#include <set>
#include <string>
#include <vector>

#include "lockstep/models/gpt2.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::examples {

// Those of matrices, and what "auto" stands for in a file of --config.
optim::AdamWOptions AdamWSettings(double lr);

using AdamWGroups = std::vector<optim::ParameterGroup<optim::AdamWOptions>>;

// Called before the model is sharded: its shapes count. A tied head is among them: stages of a
// pipeline have it apart.
std::set<std::string> NamesOfMatrices(const models::Gpt2& model);

AdamWGroups MakeAdamWGroups(const NamedTensors& matrices, const NamedTensors& others, double lr);

// The same of parameters that are told apart by name.
AdamWGroups MakeAdamWGroups(const NamedTensors& parameters, const std::set<std::string>& matrices,
                            double lr);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_ADAMW_GROUPS_H_
