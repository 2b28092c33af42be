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

std::shared_ptr<void> CommunicationHook::Take() {
  if (allows_passes_at_once()) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!taken_.expired()) {
    throw AlreadyExistsError(
        "DistributedDataParallel: another one has this communication_hook, which keeps something "
        "between calls; make a hook for each");
  }
  auto taken = std::make_shared<char>();
  taken_ = taken;
  return taken;
}

}  // namespace lockstep::strategies
