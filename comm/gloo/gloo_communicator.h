// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The "gloo" backend: ranks on several hosts, over TCP.
//
// Depending on //comm/gloo is enough for InitProcessGroup to find the backend; nobody includes this
// header but tests. docs/comm.md says which connections there are and who talks over them.
#ifndef LOCKSTEP_COMM_GLOO_GLOO_COMMUNICATOR_H_
#define LOCKSTEP_COMM_GLOO_GLOO_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/fault_injector.h"
#include "lockstep/comm/gloo/control.h"
#include "lockstep/comm/gloo/exchange.h"
#include "lockstep/comm/gloo/hierarchy.h"
#include "lockstep/comm/gloo/next_fault.h"
#include "lockstep/comm/gloo/tcp_collectives.h"
#include "lockstep/comm/gloo/transfers.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/queued_communicator.h"

namespace lockstep::comm::gloo {

// What a communicator stands on.
struct GroupParts {
  std::unique_ptr<Control> control;  // started
  std::unique_ptr<Exchange> exchange;
  std::unique_ptr<Transfers> transfers;
  std::unique_ptr<TcpCollectives> collectives;  // over all ranks, or one of each host
  std::unique_ptr<Hierarchy> hierarchy;         // null: the group is flat
  std::shared_ptr<NextFault> next_fault;        // of the host's group; null but in tests
  std::string key;  // prefix of this group's keys in the store, which no other group has
};

class GlooCommunicator final : public QueuedCommunicator {
 public:
  GlooCommunicator(const ProcessGroupOptions& options, GroupParts parts);
  ~GlooCommunicator() override;

  RefPtr<Storage> Allocate(int64_t bytes, MemoryCategory category) override;
  std::shared_ptr<Communicator> MakeSubgroup(const std::string& name,
                                             const std::vector<int>& ranks) override;
  void Abort(absl::string_view reason) override;
  Traffic traffic() const override;
  absl::string_view backend() const override { return "gloo"; }

 protected:
  void RunCollective(const Collective& collective, int64_t sequence) override;
  // Gloo's thread writes to the connections: this one gets no SIGPIPE.
  bool RunsOnAnyThread() const override { return true; }
  void StartTransfer(const Signature& signature, const Tensor& tensor, absl::Duration timeout,
                     TransferDone done) override;
  void ThrowIfFailed() const override;
  void Fail(absl::StatusCode code, absl::string_view text) override;

 private:
  // What a test wants to go wrong with this rank's message for the collective.
  std::optional<FaultKind> FaultAt(int64_t sequence) const;
  // Damages what this rank sends next to other hosts, or, if it does not, within its host.
  void CorruptNext(const Collective& collective);

  GroupParts parts_;
};

// The factory behind InitProcessGroup({.backend = "gloo"}).
std::shared_ptr<Communicator> MakeGlooCommunicator(const ProcessGroupOptions& options);
// With keys that begin with `key`, which all of its ranks and no others use.
std::shared_ptr<Communicator> MakeGlooCommunicator(const ProcessGroupOptions& options,
                                                   const std::string& key);

}  // namespace lockstep::comm::gloo

#endif  // LOCKSTEP_COMM_GLOO_GLOO_COMMUNICATOR_H_
