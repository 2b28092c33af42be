// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The "shm" backend: ranks on one host, as threads of a process or as processes.
//
// Threads are recognised by their store, a LocalStore that they share. Depending on //comm/shm is
// enough for InitProcessGroup to find the backend; nobody includes this header but tests.
#ifndef LOCKSTEP_COMM_SHM_SHM_COMMUNICATOR_H_
#define LOCKSTEP_COMM_SHM_SHM_COMMUNICATOR_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/shm/algorithms.h"
#include "lockstep/comm/shm/member.h"
#include "lockstep/comm/shm/peer_memory.h"
#include "lockstep/comm/shm/transfers.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/span_observer.h"

namespace lockstep::comm::shm {

// What a communicator stands on; made by the functions below.
struct GroupParts {
  std::shared_ptr<void> control_memory;  // keeps the control block alive
  std::shared_ptr<Liveness> liveness;    // null for threads
  std::unique_ptr<PeerMemory> memory;
  std::unique_ptr<Member> member;
  bool may_spin = false;
  std::string key;  // prefix of this group's keys in the store, which no other group has
};

class ShmCommunicator final : public Communicator {
 public:
  ShmCommunicator(const ProcessGroupOptions& options, GroupParts parts);
  ~ShmCommunicator() override;

  RefPtr<Storage> Allocate(int64_t bytes, MemoryCategory category) override;
  std::shared_ptr<Communicator> MakeSubgroup(const std::string& name, int rank, int size) override;
  void Abort(absl::string_view reason) override;
  int64_t sequence() const override;
  Traffic traffic() const override;
  absl::string_view backend() const override { return "shm"; }

 protected:
  Work Issue(Collective collective) override;
  void CheckDevice(absl::string_view call, const Tensor& tensor) const override;

 private:
  // A collective over row-major tensors, and what the caller gave.
  struct Task {
    Collective collective;
    Tensor unpack_to;  // defined when the output is strided: where the result goes in the end
    int64_t sequence = 0;
    std::shared_ptr<PendingWork> work;
    std::shared_ptr<SpanObserver> observer;  // of the thread that issued it; may be null
  };

  std::string Where(const Collective& collective, int64_t sequence) const;
  void RunQueue();
  void RunTask(Task& task);
  // What went wrong, if anything.
  std::optional<Error> RunCollective(const Task& task);
  void StartTransfer(Task task);

  const ProcessGroupOptions options_;  // keeps the store: rank 0 may be serving it
  GroupParts parts_;
  Algorithms algorithms_;
  std::unique_ptr<Transfers> transfers_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  int64_t next_sequence_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

// The factory behind InitProcessGroup({.backend = "shm"}).
std::shared_ptr<Communicator> MakeShmCommunicator(const ProcessGroupOptions& options);
// With keys that begin with `key`, which all of its ranks and no others use.
std::shared_ptr<Communicator> MakeShmCommunicator(const ProcessGroupOptions& options,
                                                  const std::string& key);

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_SHM_COMMUNICATOR_H_
