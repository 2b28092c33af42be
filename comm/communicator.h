// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Communicator: one rank's end of a group of ranks that exchange tensors.
//
//   std::shared_ptr<Communicator> world = InitProcessGroup(options);     // comm/process_group.h
//   Tensor gradient = ...;
//   world->AllReduce(gradient, {.op = ReduceOp::kAverage}).Wait();
//
// Contract of every collective:
//
// * All ranks of a group issue the same collectives in the same order (each from one thread, or
//   with an order of their own making). Different groups are independent of each other, and so are
//   a group's collectives and its point-to-point transfers.
// * A call validates its arguments, queues the collective and returns a Work; the group's
//   communication thread (CPU) or stream (CUDA) runs the collectives in order. Until the work has
//   been waited for, inputs must not be written and outputs neither read nor written.
// * Signatures (op, dtype, counts, root, reduction, tag) are compared on every call. A
//   difference, a rank that does not come before the deadline, or a rank that dies is an Error from
//   Wait() on every other rank, naming ranks, group, sequence number and calls. The group is then
//   in the error state: what is pending fails, and later calls throw at once. A new group can be
//   made.
// * Tensors may be strided: they are copied in and out. A tensor that is written must not overlap
//   itself (expanded). Tensors without elements move nothing but take part in the sequence.
// * An output may be the input itself (in place: AllReduce, Reduce); for AllGather and Gather, the
//   input may be this rank's part of the output; for ReduceScatter and Scatter, the output this
//   rank's part of the input. Other overlaps are refused.
//
// Throws, from the call itself: InvalidArgument (tensors undefined, on devices the backend does not
// serve, of differing dtypes or counts; root out of range; reduction undefined for the dtype), and
// the group's error. From Wait(): InvalidArgument (ranks disagree), DeadlineExceeded (ranks
// missing), Unavailable (a rank died or left), DataLoss (what a rank said, or its data, was
// damaged), Aborted (this end was aborted).
#ifndef LOCKSTEP_COMM_COMMUNICATOR_H_
#define LOCKSTEP_COMM_COMMUNICATOR_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/comm/collective.h"
#include "lockstep/comm/flight_record.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {

// What a rank has done in a group so far.
struct Traffic {
  // Times that it told its peers how far it has come, and pieces that it sent.
  int64_t messages = 0;
  // From the memory of peers, reduced on the way or not; what went through the control block counts
  // when it is read.
  int64_t bytes_received = 0;
  // Into the memory of peers.
  int64_t bytes_sent = 0;
};

// Thread-safe. Destroying a communicator fails what is pending and tells the peers that this rank
// has left: wait for works first.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& group_name() const { return group_name_; }
  absl::Duration timeout() const { return timeout_; }

  // `tensor` becomes the reduction over all ranks. Bytes sent and received a rank:
  // 2 (W - 1) / W of the tensor's.
  Work AllReduce(const Tensor& tensor, const AllReduceOptions& options = {});
  // The same into `output` (input's dtype and count).
  Work AllReduce(const Tensor& input, const Tensor& output, const AllReduceOptions& options = {});

  // `tensor` becomes the root's.
  Work Broadcast(const Tensor& tensor, const BroadcastOptions& options = {});

  // `tensor` becomes, on the root only, the reduction over all ranks; or, on the root, `output`,
  // which is undefined elsewhere.
  Work Reduce(const Tensor& tensor, const ReduceOptions& options = {});
  Work Reduce(const Tensor& input, const Tensor& output, const ReduceOptions& options = {});

  // `output` (W times input's count, any shape) becomes the inputs of ranks 0, 1, ... in row-major
  // order. With `counts`, `input` has counts[rank()] elements and `output` their sum.
  Work AllGather(const Tensor& input, const Tensor& output, const AllGatherOptions& options = {});
  // The same on the root only; `output` is undefined elsewhere.
  Work Gather(const Tensor& input, const Tensor& output, const GatherOptions& options = {});

  // `input` (W times output's count, any shape) is cut into W equal parts in row-major order;
  // `output` becomes the reduction of all ranks' part rank(). With `counts`, the parts have these
  // sizes.
  Work ReduceScatter(const Tensor& input, const Tensor& output,
                     const ReduceScatterOptions& options = {});
  // `output` becomes part rank() of the root's `input`, which is undefined elsewhere.
  Work Scatter(const Tensor& input, const Tensor& output, const ScatterOptions& options = {});

  // Part b of rank a's `input` becomes part a of rank b's `output`. The tensors share no memory.
  Work AllToAll(const Tensor& input, const Tensor& output, const AllToAllOptions& options = {});

  // Lists of tensors of one dtype as one collective: one signature, one meeting of the ranks (two
  // beyond 16 KiB), whatever the length of the list, which is not empty. The tensors are copied
  // into one buffer and out again: for lists of small ones. Each tensor, or pair of input and
  // output, is as in the call of one, but for these: the larger tensor of a pair is row-major,
  // pairs share no memory, and `counts` are refused. The ranks' lists must agree in every count.
  Work AllReduceCoalesced(absl::Span<const Tensor> tensors, const AllReduceOptions& options = {});
  Work AllGatherCoalesced(absl::Span<const Tensor> inputs, absl::Span<const Tensor> outputs,
                          const AllGatherOptions& options = {});
  Work ReduceScatterCoalesced(absl::Span<const Tensor> inputs, absl::Span<const Tensor> outputs,
                              const ReduceScatterOptions& options = {});

  // Completes when every rank has issued it.
  Work Barrier(const BarrierOptions& options = {});

  // Hands `tensor` to rank `peer`, which receives it by a Recv of the same dtype, count and tag.
  // The n-th Send to a rank meets the n-th Recv there from this rank; nothing else orders
  // transfers, so that none holds up another pair's, or a collective. Complete when the peer has
  // taken the data: a Send that nobody receives ends at its deadline. `peer` may be this rank
  // itself, if the Recv is issued before the Send is waited for. Calls that do not fit are
  // InvalidArgument on both ends and put the group into the error state. Up to 16 KiB go through
  // the control block; more is copied once, by the receiver (where it cannot read the sender's
  // memory, twice, in pieces).
  Work Send(const Tensor& tensor, int peer, const TransferOptions& options = {});
  Work Recv(const Tensor& tensor, int peer, const TransferOptions& options = {});
  // Several transfers as one work, which is complete when all are and throws the first's error that
  // failed. Issued in the order given, after all have been validated. What is received must share
  // no memory with another tensor of the batch. A ring, in which every rank sends to the next:
  //
  //   world->Batch({Transfer::Send(mine, (rank + 1) % size),
  //                 Transfer::Recv(theirs, (rank + size - 1) % size)}).Wait();
  Work Batch(absl::Span<const Transfer> transfers,
             std::optional<absl::Duration> timeout = std::nullopt);
  Work Batch(std::initializer_list<Transfer> transfers,
             std::optional<absl::Duration> timeout = std::nullopt) {
    return Batch(absl::MakeConstSpan(transfers.begin(), transfers.size()), timeout);
  }

  // A group of these ranks of this group, which are the new one's ranks 0, 1, ..., over the same
  // backend and store. Called by its members only, with a `name` that is new among the groups made
  // of this one. comm/subgroups.h has what programs call. Throws as InitProcessGroup does.
  virtual std::shared_ptr<Communicator> MakeSubgroup(const std::string& name,
                                                     const std::vector<int>& ranks) = 0;

  // Memory that peers reach without a copy (shared memory; pinned by the NIC or GPU elsewhere),
  // uninitialised and aligned to kStorageAlignment: the fast path of every collective for more than
  // a few kilobytes. Use FromStorage() to see it as tensors. It may outlive the communicator.
  // Throws InvalidArgument (negative), ResourceExhausted.
  virtual RefPtr<Storage> Allocate(int64_t bytes,
                                   MemoryCategory category = MemoryCategory::kCommunication) = 0;

  // Puts the group into the error state with `reason`: works pending here and on the peers fail,
  // later calls throw. Never blocks.
  virtual void Abort(absl::string_view reason) = 0;

  // Collectives (not transfers) issued on this rank so far; the sequence number of the next one.
  virtual int64_t sequence() const = 0;

  // Of the collectives and transfers that are complete on this rank. docs/comm.md has the formulas.
  virtual Traffic traffic() const = 0;

  // What this rank has done in the group lately, and the group's error: comm/flight_record.h.
  // ProcessGroupOptions::flight_recorder says how much of it is kept, and where it is written.
  virtual FlightRecord flight_record() const = 0;

  // "shm", "gloo", "nccl".
  virtual absl::string_view backend() const = 0;

 protected:
  // `timeout` must be positive, `rank` in [0, size). Throws InvalidArgument.
  Communicator(int rank, int size, std::string group_name, absl::Duration timeout);

  // Queues a collective, which takes the next sequence number, or a transfer (Send, Recv), which
  // does not. Throws the group's error.
  virtual Work Issue(Collective collective) = 0;
  // Throws InvalidArgument unless the backend can reach `tensor`'s memory.
  virtual void CheckDevice(absl::string_view call, const Tensor& tensor) const = 0;

 private:
  Collective MakeCollective(CollectiveId id, const Tensor& input, const Tensor& output,
                            int64_t count, std::optional<absl::Duration> timeout) const;
  // Throws InvalidArgument.
  void CheckRoot(absl::string_view call, int root) const;
  // Checks a collective of which one tensor is made of W parts: `part` is this rank's, `whole` all
  // of them. Either may be undefined where the rank does not have it. Sets counts and signature.
  void SetParts(Collective* collective, const Tensor& part, absl::string_view part_name,
                const Tensor& whole, absl::string_view whole_name,
                const std::vector<int64_t>& counts) const;
  // What all lists have to fulfil.
  void CheckLists(absl::string_view call, absl::Span<const Tensor> inputs,
                  absl::Span<const Tensor> outputs) const;
  // `wholes` have a part for each rank, of as many elements as `parts`.
  void CheckListParts(absl::string_view call, absl::Span<const Tensor> parts,
                      absl::Span<const Tensor> wholes, const std::vector<int64_t>& counts) const;
  void SetReduction(Collective* collective, ReduceOp op, double factor) const;
  Collective MakeTransfer(CollectiveId id, const Tensor& tensor, int peer, int64_t tag,
                          std::optional<absl::Duration> timeout) const;

  int rank_;
  int size_;
  std::string group_name_;
  absl::Duration timeout_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_COMMUNICATOR_H_
