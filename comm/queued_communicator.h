// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the CPU backends have in common: the queue of a group's collectives, the communication
// thread that runs them in order, row-major copies of strided tensors, the works, and the flight
// recorder.
//
// A thread that waits for the next collective of the queue runs it itself, if the backend allows it
// (RunsOnAnyThread): waking the communication thread, which then wakes the waiting one, takes
// longer than a small collective does. If the backend could begin it when it was issued
// (BeginCollective), the communication thread is not woken at all, unless another collective
// follows, somebody asks for the work in another way than to wait for it, or nobody does for a
// quarter of a second.
//
//   class MyCommunicator final : public QueuedCommunicator {
//    public:
//     MyCommunicator(const ProcessGroupOptions& options, const std::string& key)
//         : QueuedCommunicator(options, key) {
//       ...                      // make everything below callable
//       StartQueue();
//     }
//     ~MyCommunicator() override {
//       ...                      // make RunCollective throw
//       StopQueue();
//     }
//    protected:
//     void RunCollective(const Collective& collective, int64_t sequence) override;
//     ...
//   };
#ifndef LOCKSTEP_COMM_QUEUED_COMMUNICATOR_H_
#define LOCKSTEP_COMM_QUEUED_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/collective.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/flight_record.h"
#include "lockstep/comm/flight_recorder.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/wait_board.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/span_observer.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {

class QueuedCommunicator : public Communicator {
 public:
  // REQUIRES StopQueue().
  ~QueuedCommunicator() override;

  int64_t sequence() const final;
  FlightRecord flight_record() const final;

 protected:
  // Called once, on any thread: nullopt for success.
  using TransferDone = std::function<void(std::optional<Error>)>;

  // Keeps the options, and with them the store: this rank may be serving it. `key` tells this group
  // from others of its name. Throws as FlightRecorder's constructor does.
  QueuedCommunicator(const ProcessGroupOptions& options, std::string key);

  const ProcessGroupOptions& options() const { return options_; }
  const std::string& key() const { return key_; }
  // The options and the key of a group of these ranks of this one (MakeSubgroup).
  ProcessGroupOptions SubgroupOptions(const std::string& name, const std::vector<int>& ranks) const;
  std::string SubgroupKey(const std::string& name) const;

  // What this rank's collectives wait for, and its transfers. Told by the backend while it waits,
  // each on one thread at a time; the first is cleared here, when a collective ends.
  WaitBoard& collective_waits() { return collective_waits_; }
  WaitBoard& transfer_waits() { return transfer_waits_; }

  // Starts the communication thread. Called by constructors of backends, last.
  void StartQueue();
  // Waits for the collective that runs and for those that are queued, all of which RunCollective
  // has to fail from now on. The last thing that calls RunCollective. Called by destructors of
  // backends, first or nearly so.
  void StopQueue();

  // What a backend does. Tensors are row-major, and stay so until the work is complete.
  //
  // One at a time, in order; on the communication thread, or one that waits if RunsOnAnyThread(),
  // always under the communication thread's thread state. Throws Error; what it throws, but for
  // Aborted, is then given to Fail().
  virtual void RunCollective(const Collective& collective, int64_t sequence) = 0;
  // Whether RunCollective leaves no trace on the thread that it runs on (a signal mask, say).
  virtual bool RunsOnAnyThread() const { return false; }
  // On the thread that issues it, when no other collective is pending. Must not block. True: the
  // peers can complete theirs whatever this rank does; RunCollective, called later, does the rest.
  // False: nothing has been done.
  virtual bool BeginCollective(const Collective& /*collective*/, int64_t /*sequence*/) {
    return false;
  }
  // Starts a Send (`tensor` is read) or a Recv (written), on the thread that issues it.
  virtual void StartTransfer(const Signature& signature, const Tensor& tensor,
                             absl::Duration timeout, TransferDone done) = 0;
  // Called by a thread that waits for a transfer, until `complete`. May move data and complete
  // transfers on it, and return at any time. Ends soon after RunCollective has been made to throw.
  virtual void AttendTransfers(absl::FunctionRef<bool()> /*complete*/) {}
  // Throws the group's error, if it has one. Any thread.
  virtual void ThrowIfFailed() const = 0;
  // Puts the group into the error state, unless it is in it, and tells the peers. Any thread.
  virtual void Fail(absl::StatusCode code, absl::string_view text) = 0;

  Work Issue(Collective collective) final;
  // CPU memory only.
  void CheckDevice(absl::string_view call, const Tensor& tensor) const final;
  // Throws InvalidArgument, for Allocate: negative, or the current device is none of the CPU's.
  void CheckAllocation(int64_t bytes) const;

 private:
  // A collective over row-major tensors, and what the caller gave.
  struct Task {
    Collective collective;
    Tensor unpack_to;  // defined when the output is strided: where the result goes in the end
    int64_t sequence = 0;
    std::shared_ptr<PendingWork> work;
    std::shared_ptr<SpanObserver> observer;  // of the thread that issued it; may be null
    int64_t ticket = 0;                      // of the flight recorder
    bool begun = false;                      // by BeginCollective
  };
  class Queue;
  class TransferRunner;

  std::string Where(const Collective& collective, int64_t sequence) const;
  void ThrowIfFailedFor(const Collective& collective);
  void RecordIssued(Task* task);
  void RunTask(Task& task);
  // What went wrong, if anything.
  std::optional<Error> TryCollective(const Task& task);
  void IssueTransfer(Task task);
  // Writes the flight record if the group has an error, though this rank may have met none.
  void WriteIfFailed();

  const ProcessGroupOptions options_;
  const std::string key_;
  FlightRecorder recorder_;
  const std::shared_ptr<std::atomic<int>> blocked_;  // threads in Wait(), on works of this group
  WaitBoard collective_waits_;
  WaitBoard transfer_waits_;

  // Works hold them too.
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<TransferRunner> transfer_runner_;
  std::thread thread_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_QUEUED_COMMUNICATOR_H_
