// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Work: the handle of a collective that may still be running.
//
//   Work work = communicator->AllReduce(gradient);
//   ...                                   // compute something else
//   work.Wait();                          // now `gradient` holds the sum
//
// Buffers passed to a collective must not be written (inputs: nor outputs read) before Wait() has
// returned; the work holds references, so that dropping the tensors is allowed. On CPU, Wait()
// blocks until the data is there. On CUDA it makes the current stream wait and does not block the
// host.
#ifndef LOCKSTEP_COMM_WORK_H_
#define LOCKSTEP_COMM_WORK_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/signature.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {

// Gets what went wrong, or nullptr.
using CompletionCallback = std::function<void(const Error* error)>;

// What a backend keeps behind a Work. Thread-safe. The calls are those of Work.
class WorkState {
 public:
  virtual ~WorkState() = default;
  virtual void Wait(Deadline deadline) = 0;
  virtual bool IsCompleted() const = 0;
  virtual void OnComplete(CompletionCallback callback) = 0;
};

// Copies share one state. Thread-safe. A default Work is complete.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  // A work that is complete when all of `works` are. Its Wait() waits for each, and then throws the
  // error of the first of them that failed.
  static Work All(std::vector<Work> works);

  // Returns when the result may be used. Rethrows what the communication thread met, every time it
  // is called: an Error whose message names the op, rank, group and sequence number. After a
  // failure the contents of the outputs are undefined.
  void Wait() const { Wait(Deadline::Infinite()); }
  // The same, but throws DeadlineExceeded when the work is not complete by `deadline`. That ends
  // this wait only: the collective goes on, the group stays as it is, and the work can be waited
  // for again. (The collective's own timeout, in its options, puts the group into the error state.)
  void Wait(Deadline deadline) const {
    if (state_) state_->Wait(deadline);
  }
  // Whether Wait() would return or throw at once.
  bool IsCompleted() const { return !state_ || state_->IsCompleted(); }

  // Calls `callback` once, when the result is there or the work has failed: on the thread that
  // completes it (the group's communication thread, that of its transfers, or one that waits for
  // the work), in the order of the calls of OnComplete, before any Wait() returns; at once on this
  // thread if the work is complete. The group's later collectives wait for it: it must be short,
  // may issue collectives, and must neither wait for works of the same group nor drop the last
  // handle of its communicator. What it throws on another thread becomes the work's error, if it
  // has none, and is thrown by Wait(); the group is not affected.
  void OnComplete(CompletionCallback callback) const;

  // A work that is complete when this one is and then `next` has run, under the rules of
  // OnComplete. When this one fails, `next` does not run and the new one fails with the same error;
  // what `next` throws is the error of the new one only.
  Work Then(std::function<void()> next) const;

 private:
  std::shared_ptr<WorkState> state_;
};

class PendingWork;

// Who completes pending works, told of what is wanted of them. Thread-safe; not called under a
// lock.
class WorkRunner {
 public:
  virtual ~WorkRunner() = default;
  // The calling thread is about to sleep until `work` is complete: it may complete it itself.
  virtual void RunHere(const PendingWork& work) = 0;
  // Somebody asks for `work`, or has put a callback on it, without waiting as above.
  virtual void RunSoon(const PendingWork& work) = 0;
};

// The state that CPU backends use: completed once, by their communication thread or by one that
// waits.
class PendingWork final : public WorkState {
 public:
  // `buffers` are kept until the work is waited for (or its last handle goes). `signature` is for
  // messages. `waiting`, if given, counts the threads that are blocked in Wait().
  PendingWork(std::vector<Tensor> buffers, const Signature& signature,
              std::shared_ptr<std::atomic<int>> waiting = nullptr,
              std::shared_ptr<WorkRunner> runner = nullptr)
      : buffers_(std::move(buffers)),
        signature_(signature),
        waiting_(std::move(waiting)),
        runner_(std::move(runner)) {}

  void Wait(Deadline deadline) override;
  bool IsCompleted() const override;
  void OnComplete(CompletionCallback callback) override;

  // The same as IsCompleted, for the runner: asks for nothing.
  bool HasCompleted() const;
  // Called once; nullopt for success. An Error and not an exception_ptr: each Wait() throws an
  // exception object of its own, so that none is shared between threads. Runs the callbacks.
  void Complete(std::optional<Error> error);

 private:
  mutable std::mutex mutex_;
  std::condition_variable completed_;
  bool is_completed_ = false;  // callbacks included
  std::optional<Error> error_;
  std::vector<Tensor> buffers_;
  std::vector<CompletionCallback> callbacks_;
  const Signature signature_;
  const std::shared_ptr<std::atomic<int>> waiting_;
  const std::shared_ptr<WorkRunner> runner_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_WORK_H_
