// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads the arguments of parity cases.
#ifndef LOCKSTEP_TESTS_PARITY_OPS_ARGUMENTS_H_
#define LOCKSTEP_TESTS_PARITY_OPS_ARGUMENTS_H_

#include <nlohmann/json.hpp>

#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/random.h"

namespace lockstep::parity {

// A number of the kind that JSON writes: 3 is an integer, and 3.0 is not.
Scalar ScalarOf(const nlohmann::json& value);

// At the start of the stream that args["seed"] and args["stream"] name.
Generator GeneratorOf(const nlohmann::json& args);

// args[name], or the default.
template <typename T>
T Get(const nlohmann::json& args, const char* name, T otherwise) {
  return args.contains(name) ? args[name].get<T>() : otherwise;
}

}  // namespace lockstep::parity

#endif  // LOCKSTEP_TESTS_PARITY_OPS_ARGUMENTS_H_
