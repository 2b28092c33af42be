// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/communicator.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/tensor_memory.h"

namespace lockstep::comm {
namespace {

void CheckDefined(absl::string_view call, absl::string_view which, const Tensor& tensor) {
  if (!tensor.defined()) {
    throw InvalidArgumentError(absl::StrCat(call, ": ", which, " is an undefined tensor"));
  }
}

void CheckWritable(absl::string_view call, const Tensor& tensor) {
  if (OverlapsItself(tensor)) {
    throw InvalidArgumentError(absl::StrCat(
        call, ": elements of the output ", tensor.DebugString(), " with strides ",
        ToString(tensor.strides()), " share memory (an expanded tensor?): pass its Clone()"));
  }
}

void CheckPair(absl::string_view call, const Tensor& input, const Tensor& output) {
  if (input.dtype() != output.dtype()) {
    throw InvalidArgumentError(absl::StrCat(call, ": input is ", DTypeName(input.dtype()),
                                            " and output is ", DTypeName(output.dtype()),
                                            ": cast one of them first"));
  }
}

// Throws unless `larger` holds `size` times the elements of `part`.
void CheckParts(absl::string_view call, const Tensor& part, absl::string_view part_name,
                const Tensor& larger, absl::string_view larger_name, int size) {
  if (larger.numel() != part.numel() * size) {
    throw InvalidArgumentError(absl::StrCat(call, ": ", larger_name, " ", ToString(larger.shape()),
                                            " has ", larger.numel(), " elements, but ", size,
                                            " ranks times ", part_name, " ", ToString(part.shape()),
                                            " is ", part.numel() * size));
  }
}

bool SameView(const Tensor& a, const Tensor& b) {
  return a.IsSame(b) ||
         (RangeOf(a) == RangeOf(b) && a.shape() == b.shape() && a.strides() == b.strides());
}

[[noreturn]] void ThrowOverlap(absl::string_view call, absl::string_view allowed) {
  throw InvalidArgumentError(
      absl::StrCat(call, ": input and output overlap; ", allowed, ", or share no memory"));
}

// `part` must be part `rank` of row-major `larger`, or share no memory with it.
void CheckPartOverlap(absl::string_view call, const Tensor& part, const Tensor& larger, int rank) {
  const AddressRange part_range = RangeOf(part);
  const AddressRange larger_range = RangeOf(larger);
  if (!part_range.Overlaps(larger_range)) return;
  const uintptr_t expected =
      larger_range.begin + static_cast<uintptr_t>(part.bytes()) * static_cast<uintptr_t>(rank);
  if (!part.is_contiguous() || !larger.is_contiguous() || part_range.begin != expected) {
    ThrowOverlap(call, absl::StrCat("the smaller one may be part ", rank,
                                    " of the larger one, both row-major"));
  }
}

}  // namespace

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
  CheckReduceOp(kCall, options.op, input.dtype());
  if (input.numel() != output.numel()) {
    throw InvalidArgumentError(absl::StrCat(kCall, ": input ", ToString(input.shape()),
                                            " and output ", ToString(output.shape()),
                                            " differ in their number of elements"));
  }
  CheckWritable(kCall, output);
  if (!SameView(input, output) && RangeOf(input).Overlaps(RangeOf(output))) {
    ThrowOverlap(kCall, "they may be the same tensor");
  }
  Collective collective =
      MakeCollective(CollectiveId::kAllReduce, input, output, input.numel(), options.timeout);
  collective.signature.reduce_op = options.op;
  collective.signature.reduces = true;
  return Issue(std::move(collective));
}

Work Communicator::Broadcast(const Tensor& tensor, const BroadcastOptions& options) {
  constexpr absl::string_view kCall = "Broadcast";
  CheckDefined(kCall, "the tensor", tensor);
  CheckDevice(kCall, tensor);
  if (options.root < 0 || options.root >= size_) {
    throw InvalidArgumentError(absl::StrCat(kCall, ": root ", options.root, " is not in [0, ",
                                            size_, "), the ranks of group \"", group_name_, "\""));
  }
  if (rank_ != options.root) CheckWritable(kCall, tensor);
  Collective collective =
      MakeCollective(CollectiveId::kBroadcast, tensor, tensor, tensor.numel(), options.timeout);
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
  CheckParts(kCall, input, "input", output, "output", size_);
  CheckWritable(kCall, output);
  CheckPartOverlap(kCall, input, output, rank_);
  return Issue(
      MakeCollective(CollectiveId::kAllGather, input, output, input.numel(), options.timeout));
}

Work Communicator::ReduceScatter(const Tensor& input, const Tensor& output,
                                 const ReduceScatterOptions& options) {
  constexpr absl::string_view kCall = "ReduceScatter";
  CheckDefined(kCall, "the input", input);
  CheckDefined(kCall, "the output", output);
  CheckDevice(kCall, input);
  CheckDevice(kCall, output);
  CheckPair(kCall, input, output);
  CheckReduceOp(kCall, options.op, input.dtype());
  CheckParts(kCall, output, "output", input, "input", size_);
  CheckWritable(kCall, output);
  CheckPartOverlap(kCall, output, input, rank_);
  Collective collective =
      MakeCollective(CollectiveId::kReduceScatter, input, output, output.numel(), options.timeout);
  collective.signature.reduce_op = options.op;
  collective.signature.reduces = true;
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
  transfer.signature.dtype = tensor.dtype();
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
