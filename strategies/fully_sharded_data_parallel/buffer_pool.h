// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory that peers reach without a copy, kept for the next use of the same size: making it is a
// system call and a page fault for each page.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_BUFFER_POOL_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_BUFFER_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {

// Not thread-safe.
class BufferPool {
 public:
  BufferPool(std::shared_ptr<comm::Communicator> group, Device device)
      : group_(std::move(group)), device_(device) {}

  RefPtr<Storage> Take(int64_t bytes) {
    std::vector<RefPtr<Storage>>& free = free_[bytes];
    if (free.empty()) {
      const DeviceScope scope(device_);
      return group_->Allocate(bytes);
    }
    RefPtr<Storage> buffer = std::move(free.back());
    free.pop_back();
    return buffer;
  }
  void GiveBack(RefPtr<Storage> buffer) {
    const int64_t bytes = buffer->bytes();
    free_[bytes].push_back(std::move(buffer));
  }

 private:
  std::shared_ptr<comm::Communicator> group_;
  Device device_;
  std::map<int64_t, std::vector<RefPtr<Storage>>> free_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_BUFFER_POOL_H_
