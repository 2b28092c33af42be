// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The transport between ranks that are threads of one process, each with its device. The sender
// copies to the receiver's device.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_THREAD_TRANSPORT_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_THREAD_TRANSPORT_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/strategies/pipeline/transport.h"
#include "lockstep/tensor/device.h"

namespace lockstep::pipeline {

// The letters of one run, for all of its ranks. Thread-safe.
class ThreadPost {
 public:
  // Rank r is on devices[r].
  ThreadPost(std::vector<Device> devices, int channels, int micro_batches);

  // Copies what is on another device. Does nothing more once the run has failed.
  void Put(const Address& to, Letter letter);
  // Waits for the letter, however long: who watches the ranks ends that with Fail. Throws Aborted
  // with the reason when the run has failed.
  Letter Take(int rank, const Address& from);
  // Throws as Take, if the run has failed.
  void Check() const;
  // The first reason counts.
  void Fail(const Error& reason);

 private:
  struct Slot {
    bool full = false;
    Letter letter;
  };
  // Of one receiving rank. Its slots are those of the channels that end there.
  struct Box {
    std::mutex mutex;
    std::condition_variable arrived;
    bool failed = false;
  };

  Slot& SlotOf(const Address& address);
  [[noreturn]] void ThrowStopped() const;

  const std::vector<Device> devices_;
  const int micro_batches_;
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Box>> boxes_;
  mutable std::mutex failure_mutex_;
  std::optional<Error> failure_;
  std::atomic<bool> failed_ = false;
};

// Rank `rank`'s end.
class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadPost> post, int rank)
      : post_(std::move(post)), rank_(rank) {}

  void Send(const Address& to, Letter letter) override { post_->Put(to, std::move(letter)); }
  void Expect(const Address& /*from*/) override {}
  Letter Take(const Address& from) override { return post_->Take(rank_, from); }
  void Finish() override {}
  void Check() override { post_->Check(); }
  void Fail(const Error& reason) override { post_->Fail(reason); }

 private:
  const std::shared_ptr<ThreadPost> post_;
  const int rank_;
};

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_THREAD_TRANSPORT_H_
