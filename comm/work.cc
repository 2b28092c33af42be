// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/work.h"

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::comm {

void PendingWork::Wait() {
  std::vector<Tensor> released;  // Freed after the lock: a storage's release may take its time.
  std::unique_lock<std::mutex> lock(mutex_);
  completed_.wait(lock, [this] { return is_completed_; });
  released.swap(buffers_);
  lock.unlock();
  if (error_.has_value()) throw Error(*error_);  // constant since completion
}

bool PendingWork::IsCompleted() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return is_completed_;
}

void PendingWork::Complete(std::optional<Error> error) {
  // Notified under the lock: the waiter may destroy this object as soon as it gets the lock.
  std::lock_guard<std::mutex> lock(mutex_);
  error_ = std::move(error);
  is_completed_ = true;
  completed_.notify_all();
}

}  // namespace lockstep::comm
