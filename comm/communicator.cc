// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/communicator.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/checks.h"
#include "lockstep/comm/tensor_memory.h"

namespace lockstep::comm {
Communicator::Communicator(int rank, int size, std::string group_name, absl::Duration timeout)
    : rank_(rank), size_(size), group_name_(std::move(group_name)), timeout_(timeout) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw InvalidArgumentError(absl::StrCat("Communicator: rank ", rank, " of group \"",
                                            group_name_, "\" is not in [0, ", size, ")"));
  }
  if (timeout <= absl::ZeroDuration()) {
    throw InvalidArgumentError(absl::StrCat("Communicator: the timeout of group \"", group_name_,
                                            "\" is ", absl::FormatDuration(timeout),
                                            ": it must be positive"));
  }
}

Collective Communicator::MakeCollective(CollectiveId id, const Tensor& input, const Tensor& output,
                                        int64_t count,
                                        std::optional<absl::Duration> timeout) const {
  Collective collective;
  collective.signature.op = id;
  collective.signature.count = count;
  if (output.defined()) collective.signature.dtype = output.dtype();
  if (input.defined()) collective.signature.dtype = input.dtype();
  collective.input = input;
  collective.output = output;
  collective.timeout = timeout.value_or(timeout_);
  if (collective.timeout <= absl::ZeroDuration()) {
    throw InvalidArgumentError(absl::StrCat(CollectiveName(id), ": the timeout is ",
                                            absl::FormatDuration(collective.timeout),
                                            ": it must be positive"));
  }
  return collective;
}

void Communicator::CheckRoot(absl::string_view call, int root) const {
  if (root < 0 || root >= size_) {
    throw InvalidArgumentError(absl::StrCat(call, ": root ", root, " is not in [0, ", size_,
                                            "), the ranks of group \"", group_name_, "\""));
  }
}

void Communicator::SetReduction(Collective* collective, ReduceOp op, double factor) const {
  Signature& signature = collective->signature;
  CheckReduceOp(CollectiveName(signature.op), op, signature.dtype, factor);
  signature.reduce_op = op;
  signature.factor = factor;
  signature.reduces = true;
}

void Communicator::SetParts(Collective* collective, const Tensor& part, absl::string_view part_name,
                            const Tensor& whole, absl::string_view whole_name,
                            const std::vector<int64_t>& counts) const {
  Signature& signature = collective->signature;
  const absl::string_view call = CollectiveName(signature.op);
  int64_t begin = part.numel() * rank_;
  if (!counts.empty()) {
    CheckCounts(call, "counts", counts, size_, whole.defined() ? whole.numel() : -1);
    const int64_t mine = counts[static_cast<size_t>(rank_)];
    if (part.numel() != mine) {
      throw InvalidArgumentError(absl::StrCat(call, ": ", part_name, " ", ToString(part.shape()),
                                              " has ", part.numel(), " elements, but counts say ",
                                              mine, " for rank ", rank_));
    }
    begin = std::accumulate(counts.begin(), counts.begin() + rank_, int64_t{0});
  } else if (whole.defined() && whole.numel() != part.numel() * size_) {
    throw InvalidArgumentError(absl::StrCat(call, ": ", whole_name, " ", ToString(whole.shape()),
                                            " has ", whole.numel(), " elements, but ", size_,
                                            " ranks times ", part_name, " ", ToString(part.shape()),
                                            " is ", part.numel() * size_));
  }
  if (whole.defined()) CheckPartOverlap(call, part, whole, rank_, begin);
  signature.count = part.numel();
  // Equal parts are no different for having been counted.
  if (std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end()) {
    return;
  }
  signature.uneven = true;
  signature.count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  collective->counts = counts;
}

Work Communicator::AllReduce(const Tensor& tensor, const AllReduceOptions& options) {
  return AllReduce(tensor, tensor, options);
}

Work Communicator::AllReduce(const Tensor& input, const Tensor& output,
                             const AllReduceOptions& options) {
  constexpr absl::string_view kCall = "AllReduce";
  CheckDefined(kCall, "the input", input);
  CheckDefined(kCall, "the output", output);
  CheckDevice(kCall, input);
  CheckDevice(kCall, output);
  CheckPair(kCall, input, output);
  CheckSameCount(kCall, input, output);
  CheckWritable(kCall, output);
  CheckInPlace(kCall, input, output);
  Collective collective =
      MakeCollective(CollectiveId::kAllReduce, input, output, input.numel(), options.timeout);
  collective.signature.tag = options.tag;
  SetReduction(&collective, options.op, options.factor);
  return Issue(std::move(collective));
}

Work Communicator::Reduce(const Tensor& tensor, const ReduceOptions& options) {
  return Reduce(tensor, rank_ == options.root ? tensor : Tensor(), options);
}

Work Communicator::Reduce(const Tensor& input, const Tensor& output, const ReduceOptions& options) {
  constexpr absl::string_view kCall = "Reduce";
  CheckRoot(kCall, options.root);
  CheckDefined(kCall, "the input", input);
  CheckDevice(kCall, input);
  if (rank_ == options.root) {
    CheckDefined(kCall, "the output", output);
    CheckDevice(kCall, output);
    CheckPair(kCall, input, output);
    CheckSameCount(kCall, input, output);
    CheckWritable(kCall, output);
    CheckInPlace(kCall, input, output);
  } else {
    CheckUndefined(kCall, "the output", output, rank_, options.root);
  }
  Collective collective =
      MakeCollective(CollectiveId::kReduce, input, output, input.numel(), options.timeout);
  collective.signature.root = options.root;
  SetReduction(&collective, options.op, options.factor);
  return Issue(std::move(collective));
}

Work Communicator::Broadcast(const Tensor& tensor, const BroadcastOptions& options) {
  constexpr absl::string_view kCall = "Broadcast";
  CheckDefined(kCall, "the tensor", tensor);
  CheckDevice(kCall, tensor);
  CheckRoot(kCall, options.root);
  const bool is_root = rank_ == options.root;
  if (!is_root) CheckWritable(kCall, tensor);
  Collective collective =
      MakeCollective(CollectiveId::kBroadcast, is_root ? tensor : Tensor(),
                     is_root ? Tensor() : tensor, tensor.numel(), options.timeout);
  collective.signature.root = options.root;
  return Issue(std::move(collective));
}

Work Communicator::AllGather(const Tensor& input, const Tensor& output,
                             const AllGatherOptions& options) {
  constexpr absl::string_view kCall = "AllGather";
  CheckDefined(kCall, "the input", input);
  CheckDefined(kCall, "the output", output);
  CheckDevice(kCall, input);
  CheckDevice(kCall, output);
  CheckPair(kCall, input, output);
  CheckWritable(kCall, output);
  Collective collective =
      MakeCollective(CollectiveId::kAllGather, input, output, input.numel(), options.timeout);
  collective.signature.tag = options.tag;
  SetParts(&collective, input, "input", output, "output", options.counts);
  return Issue(std::move(collective));
}

Work Communicator::Gather(const Tensor& input, const Tensor& output, const GatherOptions& options) {
  constexpr absl::string_view kCall = "Gather";
  CheckRoot(kCall, options.root);
  CheckDefined(kCall, "the input", input);
  CheckDevice(kCall, input);
  if (rank_ == options.root) {
    CheckDefined(kCall, "the output", output);
    CheckDevice(kCall, output);
    CheckPair(kCall, input, output);
    CheckWritable(kCall, output);
  } else {
    CheckUndefined(kCall, "the output", output, rank_, options.root);
  }
  Collective collective =
      MakeCollective(CollectiveId::kGather, input, output, input.numel(), options.timeout);
  collective.signature.root = options.root;
  SetParts(&collective, input, "input", output, "output", options.counts);
  return Issue(std::move(collective));
}

Work Communicator::ReduceScatter(const Tensor& input, const Tensor& output,
                                 const ReduceScatterOptions& options) {
  constexpr absl::string_view kCall = "ReduceScatter";
  CheckDefined(kCall, "the input", input);
  CheckDefined(kCall, "the output", output);
  CheckDevice(kCall, input);
  CheckDevice(kCall, output);
  CheckPair(kCall, input, output);
  CheckWritable(kCall, output);
  Collective collective =
      MakeCollective(CollectiveId::kReduceScatter, input, output, output.numel(), options.timeout);
  collective.signature.tag = options.tag;
  SetParts(&collective, output, "output", input, "input", options.counts);
  SetReduction(&collective, options.op, options.factor);
  return Issue(std::move(collective));
}

Work Communicator::Scatter(const Tensor& input, const Tensor& output,
                           const ScatterOptions& options) {
  constexpr absl::string_view kCall = "Scatter";
  CheckRoot(kCall, options.root);
  CheckDefined(kCall, "the output", output);
  CheckDevice(kCall, output);
  CheckWritable(kCall, output);
  if (rank_ == options.root) {
    CheckDefined(kCall, "the input", input);
    CheckDevice(kCall, input);
    CheckPair(kCall, input, output);
  } else {
    CheckUndefined(kCall, "the input", input, rank_, options.root);
  }
  Collective collective =
      MakeCollective(CollectiveId::kScatter, input, output, output.numel(), options.timeout);
  collective.signature.root = options.root;
  SetParts(&collective, output, "output", input, "input", options.counts);
  return Issue(std::move(collective));
}

Work Communicator::AllToAll(const Tensor& input, const Tensor& output,
                            const AllToAllOptions& options) {
  constexpr absl::string_view kCall = "AllToAll";
  CheckDefined(kCall, "the input", input);
  CheckDefined(kCall, "the output", output);
  CheckDevice(kCall, input);
  CheckDevice(kCall, output);
  CheckPair(kCall, input, output);
  CheckWritable(kCall, output);
  CheckNoOverlap(kCall, input, output);
  Collective collective = MakeCollective(CollectiveId::kAllToAll, input, output,
                                         input.numel() / size_, options.timeout);
  if (options.send_counts.empty() && options.receive_counts.empty()) {
    CheckSameCount(kCall, input, output);
    if (input.numel() % size_ != 0) {
      throw InvalidArgumentError(absl::StrCat(kCall, ": ", input.numel(),
                                              " elements cannot be cut into ", size_,
                                              " equal parts: give send_counts and receive_counts"));
    }
    return Issue(std::move(collective));
  }
  CheckCounts(kCall, "send_counts", options.send_counts, size_, input.numel());
  CheckCounts(kCall, "receive_counts", options.receive_counts, size_, output.numel());
  collective.signature.uneven = true;
  collective.signature.count = 0;
  collective.counts = options.send_counts;
  collective.counts.insert(collective.counts.end(), options.receive_counts.begin(),
                           options.receive_counts.end());
  return Issue(std::move(collective));
}

Work Communicator::Barrier(const BarrierOptions& options) {
  return Issue(MakeCollective(CollectiveId::kBarrier, {}, {}, 0, options.timeout));
}

Collective Communicator::MakeTransfer(CollectiveId id, const Tensor& tensor, int peer, int64_t tag,
                                      std::optional<absl::Duration> timeout) const {
  const absl::string_view call = CollectiveName(id);
  const bool sends = id == CollectiveId::kSend;
  CheckDefined(call, "the tensor", tensor);
  CheckDevice(call, tensor);
  if (peer < 0 || peer >= size_) {
    throw InvalidArgumentError(absl::StrCat(call, ": peer ", peer, " is not in [0, ", size_,
                                            "), the ranks of group \"", group_name_, "\""));
  }
  if (!sends) CheckWritable(call, tensor);
  Collective transfer = MakeCollective(id, sends ? tensor : Tensor(), sends ? Tensor() : tensor,
                                       tensor.numel(), timeout);
  transfer.signature.peer = peer;
  transfer.signature.tag = tag;
  return transfer;
}

Work Communicator::Send(const Tensor& tensor, int peer, const TransferOptions& options) {
  return Issue(MakeTransfer(CollectiveId::kSend, tensor, peer, options.tag, options.timeout));
}

Work Communicator::Recv(const Tensor& tensor, int peer, const TransferOptions& options) {
  return Issue(MakeTransfer(CollectiveId::kRecv, tensor, peer, options.tag, options.timeout));
}

Work Communicator::Batch(absl::Span<const Transfer> transfers,
                         std::optional<absl::Duration> timeout) {
  std::vector<Collective> calls;
  for (const Transfer& t : transfers) {
    const CollectiveId id = t.sends ? CollectiveId::kSend : CollectiveId::kRecv;
    calls.push_back(MakeTransfer(id, t.tensor, t.peer, t.tag, timeout));
  }
  for (size_t i = 0; i < transfers.size(); ++i) {
    for (size_t j = 0; j < transfers.size(); ++j) {
      const bool written = !transfers[i].sends && i != j;
      if (written && RangeOf(transfers[i].tensor).Overlaps(RangeOf(transfers[j].tensor))) {
        throw InvalidArgumentError(
            absl::StrCat("Batch: ", calls[i].signature.ToString(), ", transfer ", i, ", and ",
                         calls[j].signature.ToString(), ", transfer ", j,
                         ", share memory: receive into a ", "tensor of its own"));
      }
    }
  }
  std::vector<Work> works;
  for (Collective& call : calls) works.push_back(Issue(std::move(call)));
  return Work::All(std::move(works));
}

}  // namespace lockstep::comm
