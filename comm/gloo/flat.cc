// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/flat.h"

#include <cstdint>
#include <vector>

#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm::gloo {
namespace {

char* BytesOf(const Tensor& tensor) {
  return tensor.defined() ? static_cast<char*>(KernelRawData(tensor)) : nullptr;
}

std::vector<int64_t> Scaled(std::vector<int64_t> ends, int64_t factor) {
  for (int64_t& end : ends) end *= factor;
  return ends;
}

}  // namespace

std::vector<int64_t> PartEnds(const Collective& collective, int size, bool received) {
  const Signature& signature = collective.signature;
  const auto parts = static_cast<size_t>(size);
  std::vector<int64_t> ends(parts + 1);
  for (size_t part = 0; part < parts; ++part) {
    const int64_t count =
        signature.uneven ? collective.counts[part + (received ? parts : 0)] : signature.count;
    ends[part + 1] = ends[part] + count;
  }
  return ends;
}

Reduction ReductionOf(const Collective& collective) {
  return {collective.signature.reduce_op, collective.signature.dtype, collective.signature.factor};
}

void RunFlat(TcpCollectives& collectives, const Collective& collective) {
  const Signature& signature = collective.signature;
  const int size = collectives.size();
  const int64_t item = ItemSize(signature.dtype);
  char* const input = BytesOf(collective.input);
  char* const output = BytesOf(collective.output);
  const Reduction reduction = ReductionOf(collective);
  const auto byte_ends = [&] { return Scaled(PartEnds(collective, size), item); };
  switch (signature.op) {
    case CollectiveId::kAllReduce:
      return collectives.AllReduce(input, output, signature.count, reduction);
    case CollectiveId::kReduce:
      return collectives.Reduce(signature.root, input, output, signature.count, reduction);
    case CollectiveId::kBroadcast:
      return collectives.Broadcast(signature.root, input != nullptr ? input : output,
                                   signature.count * item);
    case CollectiveId::kAllGather:
      return collectives.AllGather(input, output, byte_ends());
    case CollectiveId::kGather:
      return collectives.Gather(signature.root, input, output, byte_ends());
    case CollectiveId::kScatter:
      return collectives.Scatter(signature.root, input, output, byte_ends());
    case CollectiveId::kReduceScatter:
      return collectives.ReduceScatter(input, output, PartEnds(collective, size), reduction);
    case CollectiveId::kAllToAll:
      return collectives.AllToAll(input, byte_ends(), output,
                                  Scaled(PartEnds(collective, size, /*received=*/true), item));
    case CollectiveId::kBarrier:  // the meeting was all
    case CollectiveId::kSend:
    case CollectiveId::kRecv:
    case CollectiveId::kCount:
      return;
  }
}

}  // namespace lockstep::comm::gloo
