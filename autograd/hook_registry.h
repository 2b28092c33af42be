// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The hooks of one tensor: added and removed by any thread, called by a backward. Internal.
#ifndef LOCKSTEP_AUTOGRAD_HOOK_REGISTRY_H_
#define LOCKSTEP_AUTOGRAD_HOOK_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd::internal {

class HookRegistry {
 public:
  using Hook = std::function<Tensor(const Tensor&)>;

  // Returns the hook's id, or nothing when there is one of the same role, which is not empty.
  std::optional<uint64_t> Add(Hook hook, absl::string_view role = "");
  void Remove(uint64_t id);
  // The hooks now, in the order registered. They are called without a lock, so that a hook may
  // remove itself.
  std::vector<std::shared_ptr<const Hook>> Snapshot() const;

 private:
  mutable std::mutex mutex_;
  uint64_t next_id_ = 1;
  struct Entry {
    uint64_t id;
    std::string role;
    std::shared_ptr<const Hook> hook;
  };
  std::vector<Entry> hooks_;
};

}  // namespace lockstep::autograd::internal

#endif  // LOCKSTEP_AUTOGRAD_HOOK_REGISTRY_H_
