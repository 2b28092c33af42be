// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/replica_agreement.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"

namespace lockstep::strategies {
namespace {

// One line a tensor. Devices are left out: replicas may lie on different ones.
std::vector<std::string> Describe(const NamedTensors& parameters, const NamedTensors& buffers) {
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : parameters) {
    lines.push_back(absl::StrCat("parameter ", name, ": ", DTypeName(tensor.dtype()),
                                 ToString(tensor.shape()),
                                 autograd::RequiresGrad(tensor) ? "" : " (frozen)"));
  }
  for (const auto& [name, tensor] : buffers) {
    lines.push_back(
        absl::StrCat("buffer ", name, ": ", DTypeName(tensor.dtype()), ToString(tensor.shape())));
  }
  return lines;
}

// AllGather of two numbers a rank.
std::vector<int64_t> GatherNumbers(comm::Communicator& group, int64_t a, int64_t b) {
  const Tensor mine = FromVector<int64_t>({a, b}, {2}, {DType::kInt64, Cpu()});
  const Tensor all = Empty({2 * group.size()}, {DType::kInt64, Cpu()});
  group.AllGather(mine, all).Wait();
  return all.ToVector<int64_t>();
}

std::vector<std::string> GatherTexts(comm::Communicator& group, const std::string& text,
                                     int64_t longest) {
  std::vector<uint8_t> bytes(text.begin(), text.end());
  bytes.resize(static_cast<size_t>(longest), 0);
  const Tensor mine = FromVector<uint8_t>(bytes, {longest}, {DType::kUInt8, Cpu()});
  const Tensor all = Empty({longest * group.size()}, {DType::kUInt8, Cpu()});
  group.AllGather(mine, all).Wait();
  const std::vector<uint8_t> gathered = all.ToVector<uint8_t>();
  std::vector<std::string> texts;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto begin = gathered.begin() + rank * longest;
    texts.emplace_back(begin, std::find(begin, begin + longest, uint8_t{0}));
  }
  return texts;
}

[[noreturn]] void ThrowDifference(absl::string_view call, const std::vector<std::string>& texts) {
  const std::vector<std::string> first = absl::StrSplit(texts[0], '\n', absl::SkipEmpty());
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const std::vector<std::string> other = absl::StrSplit(texts[rank], '\n', absl::SkipEmpty());
    size_t i = 0;
    while (i < first.size() && i < other.size() && first[i] == other[i]) ++i;
    const std::string nothing = "nothing more";
    throw InvalidArgumentError(absl::StrCat(
        call, ": the replicas differ: rank 0 has ", first.size(), " parameters and buffers, rank ",
        rank, " has ", other.size(), "; the first difference is number ", i, ": rank 0 has ",
        i < first.size() ? first[i] : nothing, ", rank ", rank, " has ",
        i < other.size() ? other[i] : nothing, ": build the same model on every rank"));
  }
  throw InternalError(absl::StrCat(call, ": checksums of equal replicas differ"));
}

}  // namespace

void CheckReplicasAgree(absl::string_view call, comm::Communicator& group,
                        const NamedTensors& parameters, const NamedTensors& buffers) {
  const std::string text = absl::StrJoin(Describe(parameters, buffers), "\n");
  const std::vector<int64_t> numbers =
      GatherNumbers(group, static_cast<int64_t>(Hash64(text)), static_cast<int64_t>(text.size()));
  bool same = true;
  int64_t longest = 0;
  for (size_t i = 0; i < numbers.size(); i += 2) {
    same = same && numbers[i] == numbers[0] && numbers[i + 1] == numbers[1];
    longest = std::max(longest, numbers[i + 1]);
  }
  if (!same) ThrowDifference(call, GatherTexts(group, text, longest));
}

void BroadcastTensors(comm::Communicator& group, absl::Span<const Tensor> tensors, int root) {
  std::vector<comm::Work> works;
  for (const Tensor& tensor : tensors) works.push_back(group.Broadcast(tensor, {.root = root}));
  for (const comm::Work& work : works) work.Wait();
}

}  // namespace lockstep::strategies
