// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/worker_pool.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::autograd::internal {
namespace {

class Worker {
 public:
  void Give(std::function<void()> work) {
    std::lock_guard<std::mutex> lock(mutex_);
    work_ = std::move(work);
    ready_.notify_one();
  }
  std::function<void()> Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    ready_.wait(lock, [this] { return work_ != nullptr; });
    return std::exchange(work_, nullptr);
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::function<void()> work_;
};

struct Pool {
  std::mutex mutex;
  std::vector<Worker*> idle;
};

// Never destroyed: its threads wait in it until the process ends.
Pool& GetPool() {
  static Pool* const pool = new Pool;
  return *pool;
}

void RunWorker(Worker* worker) {
  for (;;) {
    worker->Take()();
    Pool& pool = GetPool();
    std::lock_guard<std::mutex> lock(pool.mutex);
    pool.idle.push_back(worker);
  }
}

}  // namespace

void RunOnWorker(std::function<void()> work) {
  Pool& pool = GetPool();
  Worker* worker = nullptr;
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    if (!pool.idle.empty()) {
      worker = pool.idle.back();
      pool.idle.pop_back();
    }
  }
  if (worker == nullptr) {
    auto owned = std::make_unique<Worker>();
    std::thread(RunWorker, owned.get()).detach();
    worker = owned.release();
  }
  worker->Give(std::move(work));
}

}  // namespace lockstep::autograd::internal
