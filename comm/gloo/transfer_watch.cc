// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/transfer_watch.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iterator>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep::comm::gloo {
namespace {

constexpr std::chrono::milliseconds kLook(100);
// After so many looks at nothing the thread dozes off: until then no transfer has to wake it.
constexpr int kIdleLooks = 20;

}  // namespace

TransferWatch::~TransferWatch() {
  {
    Lock lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

TransferWatch::Wait::Wait(TransferWatch& watch, const Signature& signature, int64_t number,
                          absl::Duration timeout)
    : watch_(watch), exceptions_(std::uncaught_exceptions()) {
  Lock lock(watch_.mutex_);
  place_ = watch_.waits_.insert(watch_.waits_.end(), {.signature = signature,
                                                      .counts = {},
                                                      .number = number,
                                                      .since_ns = MonotonicNanoseconds(),
                                                      .timeout = timeout,
                                                      .missing = {signature.peer}});
  if (watch_.board_ == nullptr) return;
  if (!watch_.thread_.joinable()) watch_.thread_ = std::thread([&watch] { watch.Run(); });
  if (watch_.dozing_) watch_.changed_.notify_one();
}

TransferWatch::Wait::~Wait() {
  Lock lock(watch_.mutex_);
  watch_.failed_ = watch_.failed_ || std::uncaught_exceptions() > exceptions_;
  watch_.waits_.erase(place_);
}

std::string TransferWatch::Wait::Diagnose() const {
  if (watch_.board_ == nullptr) return "";
  std::lock_guard<std::mutex> lock(watch_.board_mutex_);
  return watch_.board_->Diagnose(*place_);
}

bool TransferWatch::IsDue(const WaitBoard::Wait& wait) const {
  return board_->IsDue(wait.since_ns, wait.timeout);
}

void TransferWatch::Run() {
  Lock lock(mutex_);
  int idle = 0;
  while (!stopping_) {
    LookOnce(lock);
    idle = waits_.empty() ? idle + 1 : 0;
    if (idle > kIdleLooks) {
      dozing_ = true;
      changed_.wait(lock, [this] { return stopping_ || !waits_.empty(); });
      dozing_ = false;
      idle = 0;
    }
    changed_.wait_for(lock, kLook, [this] { return stopping_; });
  }
}

void TransferWatch::LookOnce(Lock& lock) {
  std::vector<WaitBoard::Wait> due;
  std::copy_if(waits_.begin(), waits_.end(), std::back_inserter(due),
               [this](const WaitBoard::Wait& wait) { return IsDue(wait); });
  if (due.empty() && !told_) return;
  told_ = !due.empty();
  const bool failed = failed_;
  lock.unlock();  // the store is asked
  {
    std::lock_guard<std::mutex> board_lock(board_mutex_);
    if (due.empty()) {
      board_->Clear(failed);
    } else {
      board_->Tell(due);
    }
  }
  lock.lock();
}

}  // namespace lockstep::comm::gloo
