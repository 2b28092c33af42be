// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/communication_hook.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::strategies {

void CommunicationHook::LoadState(const StrategyState& state) {
  if (state.empty()) return;
  const NamedTensors& some = state.shared.empty() ? state.own : state.shared;
  throw InvalidArgumentError(absl::StrCat("this communication_hook keeps no state, and is to load ",
                                          some[0].first,
                                          "; give the hook that the state was saved with"));
}

}  // namespace lockstep::strategies
