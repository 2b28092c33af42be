// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/work.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lockstep::comm {
namespace {

class CombinedWork final : public WorkState {
 public:
  explicit CombinedWork(std::vector<Work> works) : works_(std::move(works)) {}

  void Wait(Deadline deadline) override {
    std::optional<Error> first;
    for (const Work& work : works_) {
      try {
        work.Wait(deadline);
      } catch (const Error& error) {
        if (!work.IsCompleted()) throw;  // this wait's deadline
        if (!first.has_value()) first = error;
      }
    }
    if (first.has_value()) throw Error(*first);
  }
  bool IsCompleted() const override {
    return std::all_of(works_.begin(), works_.end(),
                       [](const Work& work) { return work.IsCompleted(); });
  }
  void OnComplete(CompletionCallback callback) override {
    struct Countdown {
      std::mutex mutex;
      size_t left = 0;
      std::vector<std::optional<Error>> errors;
      CompletionCallback callback;
    };
    auto countdown = std::make_shared<Countdown>();
    countdown->left = works_.size();
    countdown->errors.resize(works_.size());
    countdown->callback = std::move(callback);
    for (size_t i = 0; i < works_.size(); ++i) {
      works_[i].OnComplete([countdown, i](const Error* error) {
        {
          std::lock_guard<std::mutex> lock(countdown->mutex);
          if (error != nullptr) countdown->errors[i] = *error;
          if (--countdown->left > 0) return;
        }
        const auto& errors = countdown->errors;
        const auto failed =
            std::find_if(errors.begin(), errors.end(), [](const auto& e) { return e.has_value(); });
        countdown->callback(failed == errors.end() ? nullptr : &**failed);
      });
    }
  }

 private:
  const std::vector<Work> works_;
};

// What `call` throws, if anything.
template <typename Call>
std::optional<Error> ErrorOf(const Call& call) {
  try {
    call();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return InternalError(error.what());
  }
}

// Counts this thread while it is blocked. `count` may be null.
class BlockedThread {
 public:
  explicit BlockedThread(std::atomic<int>* count) : count_(count) {
    if (count_ != nullptr) count_->fetch_add(1, std::memory_order_relaxed);
  }
  ~BlockedThread() {
    if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_relaxed);
  }
  BlockedThread(const BlockedThread&) = delete;
  BlockedThread& operator=(const BlockedThread&) = delete;

 private:
  std::atomic<int>* const count_;
};

}  // namespace

Work Work::All(std::vector<Work> works) {
  if (works.empty()) return Work();
  if (works.size() == 1) return works.front();
  return Work(std::make_shared<CombinedWork>(std::move(works)));
}

void Work::OnComplete(CompletionCallback callback) const {
  if (state_ == nullptr) {
    callback(nullptr);
  } else {
    state_->OnComplete(std::move(callback));
  }
}

Work Work::Then(std::function<void()> next) const {
  const auto after = std::make_shared<PendingWork>(std::vector<Tensor>(), Signature());
  OnComplete([after, next = std::move(next)](const Error* error) {
    after->Complete(error != nullptr ? std::optional<Error>(*error) : ErrorOf(next));
  });
  return Work(after);
}

void PendingWork::Wait(Deadline deadline) {
  std::vector<Tensor> released;  // Freed after the lock: a storage's release may take its time.
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_completed = [this] { return is_completed_; };
  const BlockedThread blocked(is_completed_ ? nullptr : waiting_.get());
  if (!is_completed_ && runner_ != nullptr) {
    lock.unlock();
    // Once run here it ends at the collective's own deadline only.
    if (deadline.IsInfinite()) {
      runner_->RunHere(*this);
    } else {
      runner_->RunSoon(*this);
    }
    lock.lock();
  }
  if (deadline.IsInfinite()) {
    completed_.wait(lock, is_completed);
  } else if (!completed_.wait_until(lock, deadline.ToTimePoint(), is_completed)) {
    throw DeadlineExceededError(absl::StrCat(
        "Work::Wait: ", signature_.ToString(),
        " is not complete by the deadline of this wait; it goes on, and can be waited for again"));
  }
  released.swap(buffers_);
  lock.unlock();
  if (error_.has_value()) throw Error(*error_);  // constant since completion
}

bool PendingWork::HasCompleted() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return is_completed_;
}

bool PendingWork::IsCompleted() const {
  if (HasCompleted()) return true;
  if (runner_ != nullptr) runner_->RunSoon(*this);
  return false;
}

void PendingWork::OnComplete(CompletionCallback callback) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!is_completed_) callbacks_.push_back(std::move(callback));
  }
  if (callback == nullptr) {
    if (runner_ != nullptr) runner_->RunSoon(*this);
    return;
  }
  callback(error_.has_value() ? &*error_ : nullptr);
}

void PendingWork::Complete(std::optional<Error> error) {
  std::unique_lock<std::mutex> lock(mutex_);
  error_ = std::move(error);
  while (!callbacks_.empty()) {
    const std::vector<CompletionCallback> callbacks = std::exchange(callbacks_, {});
    lock.unlock();
    for (const CompletionCallback& callback : callbacks) {
      // Only this thread changes error_, and others read it after completion.
      std::optional<Error> thrown =
          ErrorOf([&] { callback(error_.has_value() ? &*error_ : nullptr); });
      if (thrown.has_value() && !error_.has_value()) {
        error_ =
            thrown->WithContext(absl::StrCat("a completion callback of ", signature_.ToString()));
      }
    }
    lock.lock();
  }
  // Notified under the lock: the waiter may destroy this object as soon as it gets the lock.
  is_completed_ = true;
  completed_.notify_all();
}

}  // namespace lockstep::comm
