// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The "shm" backend: ranks on one host, as threads of a process or as processes.
//
// Threads are recognised by their store, a LocalStore that they share. Depending on //comm/shm is
// enough for InitProcessGroup to find the backend; nobody includes this header but tests.
#ifndef LOCKSTEP_COMM_SHM_SHM_COMMUNICATOR_H_
#define LOCKSTEP_COMM_SHM_SHM_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/collective.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/queued_communicator.h"
#include "lockstep/comm/shm/algorithms.h"
#include "lockstep/comm/shm/member.h"
#include "lockstep/comm/shm/peer_memory.h"
#include "lockstep/comm/shm/transfers.h"
#include "lockstep/comm/signature.h"
#include "lockstep/tensor/tensor.h"

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

class ShmCommunicator final : public QueuedCommunicator {
 public:
  ShmCommunicator(const ProcessGroupOptions& options, GroupParts parts);
  ~ShmCommunicator() override;

  RefPtr<Storage> Allocate(int64_t bytes, MemoryCategory category) override;
  std::shared_ptr<Communicator> MakeSubgroup(const std::string& name,
                                             const std::vector<int>& ranks) override;
  void Abort(absl::string_view reason) override;
  Traffic traffic() const override;
  absl::string_view backend() const override { return "shm"; }

 protected:
  void RunCollective(const Collective& collective, int64_t sequence) override;
  bool RunsOnAnyThread() const override { return true; }
  bool BeginCollective(const Collective& collective, int64_t sequence) override;
  void StartTransfer(const Signature& signature, const Tensor& tensor, absl::Duration timeout,
                     TransferDone done) override;
  void AttendTransfers(absl::FunctionRef<bool()> complete) override;
  void ThrowIfFailed() const override;
  void Fail(absl::StatusCode code, absl::string_view text) override;

 private:
  GroupParts parts_;
  Algorithms algorithms_;
  std::unique_ptr<Transfers> transfers_;
};

// The factory behind InitProcessGroup({.backend = "shm"}).
std::shared_ptr<Communicator> MakeShmCommunicator(const ProcessGroupOptions& options);
// With keys that begin with `key`, which all of its ranks and no others use.
std::shared_ptr<Communicator> MakeShmCommunicator(const ProcessGroupOptions& options,
                                                  const std::string& key);

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_SHM_COMMUNICATOR_H_
