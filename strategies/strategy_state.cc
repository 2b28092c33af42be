// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/strategy_state.h"

#include "absl/strings/strip.h"

namespace lockstep::strategies {
namespace {

NamedTensors PartOf(const NamedTensors& tensors, absl::string_view prefix) {
  NamedTensors part;
  for (const auto& [name, tensor] : tensors) {
    absl::string_view rest = name;
    if (absl::ConsumePrefix(&rest, prefix)) part.Insert(rest, tensor);
  }
  return part;
}

}  // namespace

void StrategyState::InsertAll(const StrategyState& other, absl::string_view prefix) {
  shared.InsertAll(other.shared, prefix);
  own.InsertAll(other.own, prefix);
}

StrategyState StrategyState::Part(absl::string_view prefix) const {
  return {PartOf(shared, prefix), PartOf(own, prefix)};
}

}  // namespace lockstep::strategies
