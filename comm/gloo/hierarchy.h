// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives of a group whose ranks share hosts: what is between hosts goes between their leaders,
// over TCP, and what is within a host through a group of its ranks, in memory.
//
//   AllReduce   = Reduce to the leader | AllReduce among leaders | Broadcast from the leader
//   AllGather   = Gather to the leader | AllGather among leaders | Broadcast from the leader
//   ...
//
// The leader is the lowest rank of a host. Hosts are in the order of their leaders; which ranks are
// on which host does not matter. A reduction runs in rank order within a host and then in the order
// of the hosts, and 16-bit results are rounded once in each of the two.
#ifndef LOCKSTEP_COMM_GLOO_HIERARCHY_H_
#define LOCKSTEP_COMM_GLOO_HIERARCHY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/collective.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/gloo/control.h"
#include "lockstep/comm/gloo/flat.h"
#include "lockstep/comm/gloo/tcp_collectives.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm::gloo {

// Which ranks share hosts.
struct Placement {
  std::vector<std::vector<int>> hosts;  // ranks, ascending; hosts in the order of their first rank
  int my_host = 0;
  int my_place = 0;  // in hosts[my_host]

  Placement(const std::vector<std::string>& host_of_rank, int rank);
  bool is_leader() const { return my_place == 0; }
  const std::vector<int>& mine() const { return hosts[static_cast<size_t>(my_host)]; }
  std::vector<int> Leaders() const;
  int HostOf(int rank) const;
  // In its host.
  int PlaceOf(int rank) const;
};

// Used by the communication thread, but for Interrupt.
class Hierarchy {
 public:
  // `local`: of the ranks of this host, in their order. `leaders`: over the leaders; its calls are
  // made by them alone.
  Hierarchy(Placement placement, std::shared_ptr<Communicator> local, TcpCollectives* leaders,
            Control* control);

  // Runs a collective over row-major tensors on which all ranks have agreed, in the round that
  // `leaders` has begun.
  void Run(const Collective& collective, Deadline deadline);

  // Ends all waiting.
  void Interrupt();

  Communicator& local() { return *local_; }
  // Whether this rank's data reach other hosts from here: not those of a rank that hands them to
  // its leader.
  bool SendsToHosts() const { return placement_.is_leader() && placement_.hosts.size() > 1; }
  // How many messages of a rank in its host's group go ahead of its data: counts.
  int MessagesAheadOfData(const Collective& collective) const {
    return placement_.hosts.size() > 1 && collective.signature.op == CollectiveId::kAllToAll ? 1
                                                                                             : 0;
  }

 private:
  void RunOnOneHost(const Collective& collective);
  void AllReduce(const Collective& c);
  void Reduce(const Collective& c);
  void Broadcast(const Collective& c);
  void AllGather(const Collective& c);
  void Gather(const Collective& c);
  void Scatter(const Collective& c);
  void ReduceScatter(const Collective& c);
  void AllToAll(const Collective& c);

  // A reduction in two levels: what each does, and a factor for the result (1: none).
  struct Levels {
    ReduceOp local_op;
    double local_factor;
    Reduction leaders;
    double scale;
  };
  Levels LevelsOf(const Collective& c) const;
  // Averages and pre-multiplied sums of 16-bit values are carried in float32 up to the end: a
  // host's sum may be too large for 16 bits, and its part of the average too small.
  Tensor Widened(const Collective& c, const Levels& levels) const;
  // The host's reduction of all inputs: on the leader, where it is `output` if that will do.
  Tensor ReduceLocally(const Collective& c, const Levels& levels, const Tensor& output);
  // Applies what is left of the reduction, and writes the result to `to`, on the leader.
  void FinishReduction(const Tensor& reduced, const Levels& levels, const Tensor& to) const;

  // Waits for a collective or transfer of the host's group; what goes wrong there is the group's
  // error.
  void Await(const std::function<Work()>& issue);
  absl::Duration Left() const;
  Tensor New(int64_t count, DType dtype) const;

  // A tensor of parts, of which `ends` are the offsets by rank, has the parts of a host together
  // when it is in the order of hosts.
  struct Parts {
    std::vector<int64_t> ends;       // by rank, in the order of ranks
    std::vector<int64_t> host_ends;  // by host, in the order of hosts
    std::vector<int64_t> mine;       // counts of this host's ranks
    int64_t total() const { return ends.back(); }
    int64_t my_total = 0;
  };
  Parts PartsOf(std::vector<int64_t> ends) const;
  // Copies between the two orders.
  void ToHostOrder(const Parts& parts, const Tensor& by_rank, const Tensor& by_host) const;
  void ToRankOrder(const Parts& parts, const Tensor& by_host, const Tensor& by_rank) const;
  // What the ranks of this host send or take in an AllToAll.
  class HostCounts;
  // Of the leaders: trades the elements that this host's ranks send for those that they take, both
  // in the order of the ranks' tensors.
  void TradeWithHosts(const HostCounts& sent, const Tensor& inputs, const HostCounts& taken,
                      const Tensor& outputs);
  // Hands a tensor from this host's leader to another of its ranks, or the reverse.
  void MoveFromLeader(int place, const Tensor& from, const Tensor& to);
  void MoveToLeader(int place, const Tensor& from, const Tensor& to);

  const Placement placement_;
  const int size_;
  const int rank_;
  std::shared_ptr<Communicator> local_;
  TcpCollectives& leaders_;
  Control& control_;
  Deadline deadline_;
  std::atomic<bool> running_{false};
};

}  // namespace lockstep::comm::gloo

#endif  // LOCKSTEP_COMM_GLOO_HIERARCHY_H_
