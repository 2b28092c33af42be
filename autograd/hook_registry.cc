// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/hook_registry.h"

#include <algorithm>
#include <utility>

namespace lockstep::autograd::internal {

std::optional<uint64_t> HookRegistry::Add(Hook hook, absl::string_view role) {
  auto shared = std::make_shared<const Hook>(std::move(hook));
  std::lock_guard<std::mutex> lock(mutex_);
  const bool taken = !role.empty() && std::any_of(hooks_.begin(), hooks_.end(),
                                                  [&](const Entry& e) { return e.role == role; });
  if (taken) return std::nullopt;
  hooks_.push_back({next_id_, std::string(role), std::move(shared)});
  return next_id_++;
}

void HookRegistry::Remove(uint64_t id) {
  std::shared_ptr<const Hook> removed;  // destroyed after the lock: it may own anything
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = hooks_.begin(); it != hooks_.end(); ++it) {
    if (it->id != id) continue;
    removed = std::move(it->hook);
    hooks_.erase(it);
    return;
  }
}

std::vector<std::shared_ptr<const HookRegistry::Hook>> HookRegistry::Snapshot() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<const Hook>> hooks;
  hooks.reserve(hooks_.size());
  for (const Entry& entry : hooks_) hooks.push_back(entry.hook);
  return hooks;
}

}  // namespace lockstep::autograd::internal
