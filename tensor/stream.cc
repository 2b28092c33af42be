// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/stream.h"

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {

struct Event::State {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  bool complete = false;
  std::exception_ptr error;
};

Event Event::MakePending() {
  Event event;
  event.state_ = std::make_shared<State>();
  return event;
}

bool Event::IsComplete() const {
  if (!state_) return true;
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->complete;
}

void Event::Wait() const {
  if (!state_) return;
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->complete; });
  if (state_->error) std::rethrow_exception(state_->error);
}

void Event::Complete(std::exception_ptr error) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->complete = true;
  state_->error = std::move(error);
  state_->changed.notify_all();
}

namespace {

// The thread behind a copy stream. Started at first use and never joined: work may be in flight
// when the program ends.
class StreamWorker {
 public:
  Event Enqueue(std::function<void()> work) {
    Item item{std::move(work), CurrentThreadState(), Event::MakePending()};
    Event event = item.done;
    std::lock_guard<std::mutex> lock(mutex_);
    if (!started_) {
      std::thread([this] { Run(); }).detach();
      started_ = true;
    }
    items_.push_back(std::move(item));
    changed_.notify_one();
    return event;
  }

 private:
  struct Item {
    std::function<void()> work;
    ThreadState state;
    Event done;
  };

  [[noreturn]] void Run() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return !items_.empty(); });
      Item item = std::move(items_.front());
      items_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        ScopedThreadState scope(item.state);
        item.work();
      } catch (...) {
        error = std::current_exception();
      }
      item.work = nullptr;
      item.done.Complete(error);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool started_ = false;
};

StreamWorker& CopyWorker(const Stream& stream) {
  static auto* workers = new std::array<StreamWorker, kDeviceOrdinalCount>;
  return (*workers)[stream.device.ordinal()];
}

// Whether `stream` is the calling thread; throws for streams that nothing serves.
bool RunsInline(const Stream& stream, const char* call) {
  const bool host = stream.device.type == DeviceType::kCpu ||
                    stream.device.type == DeviceType::kHost ||
                    stream.device.type == DeviceType::kMeta;
  if (!host || stream.id < 0 || stream.id > 1) {
    throw UnimplementedError(absl::StrCat(call, ": no stream ", stream.id, " on ",
                                          ToString(stream.device),
                                          ": a CPU device has streams 0 (compute) and 1 (copy)"));
  }
  return stream.id == 0;
}

}  // namespace

Event Stream::Enqueue(std::function<void()> work) const {
  if (!RunsInline(*this, "Stream::Enqueue")) return CopyWorker(*this).Enqueue(std::move(work));
  Event event = Event::MakePending();
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  work = nullptr;
  event.Complete(error);
  return event;
}

Event Stream::Record() const {
  if (RunsInline(*this, "Stream::Record")) return Event();
  return CopyWorker(*this).Enqueue([] {});
}

void Stream::WaitFor(const Event& event) const {
  if (RunsInline(*this, "Stream::WaitFor")) {
    event.Wait();
  } else {
    // An error of the other stream is reported by its own event, not by this one's work.
    CopyWorker(*this).Enqueue([event] { event.Wait(); });
  }
}

void Stream::Synchronize() const { Record().Wait(); }

}  // namespace lockstep
