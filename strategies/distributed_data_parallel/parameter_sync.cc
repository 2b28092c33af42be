// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/parameter_sync.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/byte_strings.h"
#include "lockstep/comm/work.h"
#include "lockstep/strategies/claim_gradient.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

// One line a tensor.
std::string Describe(const NamedTensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    absl::StrAppend(&text, name, " ", DTypeName(tensor.dtype()), ToString(tensor.shape()),
                    autograd::RequiresGrad(tensor) ? "" : " without gradient",
                    IsLost(tensor) ? " whose elements are lost" : "", "\n");
  }
  return text;
}

}  // namespace

void VerifySameTensors(absl::string_view strategy, const NamedTensors& tensors,
                       comm::Communicator& group) {
  const std::vector<std::string> texts = comm::AllGatherBytes(group, Describe(tensors));
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const std::vector<std::string> first = absl::StrSplit(texts[0], '\n', absl::SkipEmpty());
    const std::vector<std::string> other = absl::StrSplit(texts[rank], '\n', absl::SkipEmpty());
    size_t i = 0;
    while (i < first.size() && i < other.size() && first[i] == other[i]) ++i;
    const auto line = [&](const std::vector<std::string>& lines) {
      return i < lines.size() ? absl::StrCat("'", lines[i], "'") : std::string("none");
    };
    throw InvalidArgumentError(
        absl::StrCat(strategy, ": the ranks' parameters differ: number ", i, " is ", line(first),
                     " on rank 0 and ", line(other), " on rank ", rank, " (they have ",
                     first.size(), " and ", other.size(),
                     "); build the same model on every rank, and shard it once (the "
                     "parts of a FullyShardedDataParallel differ; its Unwrap() puts whole "
                     "parameters back)"));
  }
  CheckNotLost(strategy, tensors);
}

std::vector<int64_t> BroadcastIndices(const std::vector<int64_t>& indices,
                                      comm::Communicator& group) {
  const Tensor numbers =
      FromVector<int64_t>(indices, {static_cast<int64_t>(indices.size())}, {.device = Cpu()});
  group.Broadcast(numbers).Wait();
  return numbers.ToVector<int64_t>();
}

void BroadcastTensors(const NamedTensors& tensors, comm::Communicator& group, int root) {
  const autograd::NoGradScope no_grad;
  std::vector<comm::Work> works;
  for (const auto& [name, tensor] : tensors)
    works.push_back(group.Broadcast(tensor, {.root = root}));
  for (const comm::Work& work : works) work.Wait();
}

}  // namespace lockstep::strategies
