// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/work.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::comm {
namespace {

class CombinedWork final : public WorkState {
 public:
  explicit CombinedWork(std::vector<Work> works) : works_(std::move(works)) {}

  void Wait() override {
    std::optional<Error> first;
    for (const Work& work : works_) {
      try {
        work.Wait();
      } catch (const Error& error) {
        if (!first.has_value()) first = error;
      }
    }
    if (first.has_value()) throw Error(*first);
  }
  bool IsCompleted() const override {
    return std::all_of(works_.begin(), works_.end(),
                       [](const Work& work) { return work.IsCompleted(); });
  }

 private:
  const std::vector<Work> works_;
};

}  // namespace

Work Work::All(std::vector<Work> works) {
  if (works.size() == 1) return works.front();
  return Work(std::make_shared<CombinedWork>(std::move(works)));
}

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
