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

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {

// What a backend keeps behind a Work. Thread-safe.
class WorkState {
 public:
  virtual ~WorkState() = default;
  virtual void Wait() = 0;
  virtual bool IsCompleted() const = 0;
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
  void Wait() const {
    if (state_) state_->Wait();
  }
  // Whether Wait() would return or throw at once.
  bool IsCompleted() const { return !state_ || state_->IsCompleted(); }

 private:
  std::shared_ptr<WorkState> state_;
};

// The state that CPU backends use: completed once, by their communication thread.
class PendingWork final : public WorkState {
 public:
  // `buffers` are kept until the work is waited for (or its last handle goes).
  explicit PendingWork(std::vector<Tensor> buffers) : buffers_(std::move(buffers)) {}

  void Wait() override;
  bool IsCompleted() const override;

  // Called once; nullopt for success. An Error and not an exception_ptr: each Wait() throws an
  // exception object of its own, so that none is shared between threads.
  void Complete(std::optional<Error> error);

 private:
  mutable std::mutex mutex_;
  std::condition_variable completed_;
  bool is_completed_ = false;
  std::optional<Error> error_;
  std::vector<Tensor> buffers_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_WORK_H_
