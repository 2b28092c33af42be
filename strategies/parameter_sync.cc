// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/parameter_sync.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/byte_strings.h"
#include "lockstep/comm/work.h"
#include "lockstep/strategies/lost_parameter.h"
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

// Where two texts have the first line that differs.
struct Difference {
  size_t line = 0;
  std::string first, other;  // quoted, or "none"
  size_t first_count = 0, other_count = 0;
};

Difference FindDifference(const std::string& first, const std::string& other) {
  const std::vector<std::string> a = absl::StrSplit(first, '\n', absl::SkipEmpty());
  const std::vector<std::string> b = absl::StrSplit(other, '\n', absl::SkipEmpty());
  size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  const auto line = [&](const std::vector<std::string>& lines) {
    return i < lines.size() ? absl::StrCat("'", lines[i], "'") : std::string("none");
  };
  return {i, line(a), line(b), a.size(), b.size()};
}

}  // namespace

void VerifySameTensors(absl::string_view strategy, const NamedTensors& tensors,
                       comm::Communicator& group, const std::vector<std::string>& settings) {
  // Settings first; an empty line ends them.
  const std::vector<std::string> texts = comm::AllGatherBytes(
      group, absl::StrCat(absl::StrJoin(settings, "\n"), "\n\n", Describe(tensors)));
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const std::pair<std::string, std::string> first =
        absl::StrSplit(texts[0], absl::MaxSplits("\n\n", 1));
    const std::pair<std::string, std::string> other =
        absl::StrSplit(texts[rank], absl::MaxSplits("\n\n", 1));
    if (first.first != other.first) {
      const Difference found = FindDifference(first.first, other.first);
      throw InvalidArgumentError(
          absl::StrCat(strategy, ": the ranks' options differ: ", found.first, " on rank 0 and ",
                       found.other, " on rank ", rank, "; give all ranks the same"));
    }
    const Difference found = FindDifference(first.second, other.second);
    throw InvalidArgumentError(
        absl::StrCat(strategy, ": the ranks' parameters differ: number ", found.line, " is ",
                     found.first, " on rank 0 and ", found.other, " on rank ", rank, " (they have ",
                     found.first_count, " and ", found.other_count,
                     "); build the same model on every rank, and shard it once (the parts of a "
                     "FullyShardedDataParallel differ; its Unwrap() puts whole parameters back)"));
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
