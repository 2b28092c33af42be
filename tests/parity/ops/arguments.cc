// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tests/parity/ops/arguments.h"

namespace lockstep::parity {

Scalar ScalarOf(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  return value.get<double>();
}

Generator GeneratorOf(const nlohmann::json& args) {
  return {{args["seed"].get<uint64_t>(), args["stream"].get<uint64_t>(), 0}};
}

}  // namespace lockstep::parity
