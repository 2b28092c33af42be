// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The transport between the ranks of a communicator. Each letter is a header of fixed size in a
// group of its own, and then its tensors in the data group: the receiver, who does not know their
// shapes, posts their receives when the header comes. The n-th send to a rank meets the n-th
// receive from it in both groups.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_COMMUNICATOR_TRANSPORT_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_COMMUNICATOR_TRANSPORT_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/work.h"
#include "lockstep/strategies/pipeline/transport.h"
#include "lockstep/tensor/device.h"

namespace lockstep::pipeline {

// Two groups of the same ranks. Nothing else sends in them while a run is on.
struct TransportGroups {
  std::shared_ptr<comm::Communicator> data;
  std::shared_ptr<comm::Communicator> headers;
};

class CommunicatorTransport final : public Transport {
 public:
  // What is received goes to `device`. `timeout` absent: the groups'.
  CommunicatorTransport(TransportGroups groups, Device device, int micro_batches,
                        std::optional<absl::Duration> timeout);
  // Ends the run as Fail does where letters are still expected.
  ~CommunicatorTransport() override;

  // Throws InvalidArgument for a letter whose shapes do not fit into a header (some 50 tensors).
  void Send(const Address& to, Letter letter) override;
  void Expect(const Address& from) override;
  Letter Take(const Address& from) override;
  void Finish() override;
  void Fail(const Error& reason) override;

 private:
  struct Incoming;
  struct Inbox;

  int64_t TagOf(const Address& address) const;
  void DropCompletedSends();

  const TransportGroups groups_;
  const Device device_;
  const int micro_batches_;
  const std::optional<absl::Duration> timeout_;
  // What is shared with the callbacks of headers, which may outlive this object.
  const std::shared_ptr<Inbox> inbox_;
  std::map<int64_t, std::shared_ptr<Incoming>> expected_;  // by tag
  std::deque<comm::Work> sends_;
};

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_COMMUNICATOR_TRANSPORT_H_
