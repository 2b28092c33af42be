// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The public functions that parity cases call, by name; op_functions.py has PyTorch's under the
// same names.
#ifndef LOCKSTEP_TESTS_PARITY_OPS_BINDINGS_H_
#define LOCKSTEP_TESTS_PARITY_OPS_BINDINGS_H_

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::parity {

using Binding = std::function<std::vector<Tensor>(TensorSpan inputs, const nlohmann::json& args)>;
using BindingTable = std::map<std::string, Binding>;

void AddElementwiseBindings(BindingTable& table);
void AddReductionBindings(BindingTable& table);
void AddNeuralBindings(BindingTable& table);
void AddIndexingBindings(BindingTable& table);
void AddViewBindings(BindingTable& table);
void AddCreationAndUpdateBindings(BindingTable& table);
void AddModuleBindings(BindingTable& table);

// All of the above.
const BindingTable& Bindings();

}  // namespace lockstep::parity

#endif  // LOCKSTEP_TESTS_PARITY_OPS_BINDINGS_H_
