// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// StrategyState: what a strategy keeps from step to step, beside the model and the optimizer, so
// that a run that is resumed is the run that was not disturbed.
//
//   strategies::StrategyState kept = ddp.SaveState();
//   state::TrainingState state;
//   state.strategy.InsertAll(kept.shared, "ddp.");
//   state.own.InsertAll(kept.own, "ddp.");
//
// A state that is loaded on another number of ranks has no `own` for them: what was the same
// everywhere counts, and the rest begins anew.
#ifndef LOCKSTEP_STRATEGIES_STRATEGY_STATE_H_
#define LOCKSTEP_STRATEGIES_STRATEGY_STATE_H_

#include "absl/strings/string_view.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::strategies {

struct StrategyState {
  NamedTensors shared;  // the same on every rank
  NamedTensors own;     // this rank's

  bool empty() const { return shared.empty() && own.empty(); }
  // Adds all of `other` as `prefix` + name. Throws as NamedTensors does.
  void InsertAll(const StrategyState& other, absl::string_view prefix);
  // The tensors whose names begin with `prefix`, without it.
  StrategyState Part(absl::string_view prefix) const;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_STRATEGY_STATE_H_
