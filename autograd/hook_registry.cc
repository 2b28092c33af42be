// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/hook_registry.h"

namespace lockstep::autograd::internal {

uint64_t HookRegistry::Add(Hook hook) {
  auto shared = std::make_shared<const Hook>(std::move(hook));
  std::lock_guard<std::mutex> lock(mutex_);
  hooks_.emplace_back(next_id_, std::move(shared));
  return next_id_++;
}

void HookRegistry::Remove(uint64_t id) {
  std::shared_ptr<const Hook> removed;  // destroyed after the lock: it may own anything
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = hooks_.begin(); it != hooks_.end(); ++it) {
    if (it->first != id) continue;
    removed = std::move(it->second);
    hooks_.erase(it);
    return;
  }
}

std::vector<std::shared_ptr<const HookRegistry::Hook>> HookRegistry::Snapshot() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<const Hook>> hooks;
  hooks.reserve(hooks_.size());
  for (const auto& [id, hook] : hooks_) hooks.push_back(hook);
  return hooks;
}

}  // namespace lockstep::autograd::internal
