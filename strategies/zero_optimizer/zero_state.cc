// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The state of a ZeroOptimizer: from pieces to whole tensors and back.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/work.h"
#include "lockstep/strategies/zero_optimizer/zero_optimizer.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::strategies {
std::optional<size_t> ZeroOptimizer::ParameterOf(const std::string& state_name) const {
  const auto found = index_.find(optim::SplitStateName(state_name).parameter);
  return found == index_.end() ? std::nullopt : std::optional<size_t>(found->second);
}

optim::OptimizerState ZeroOptimizer::ConsolidateState(int root) const {
  if (root < 0 || root >= group_->size()) {
    throw OutOfRangeError(
        absl::StrCat("ZeroOptimizer::ConsolidateState: rank ", root, " of ", group_->size()));
  }
  const autograd::NoGradScope no_grad;
  // Every rank has pieces of the same parameters, if of no elements, so that all walk one list.
  const optim::OptimizerState pieces = inner_->SaveState();
  optim::OptimizerState state;
  std::vector<comm::Work> sent;
  for (const auto& [name, piece] : pieces.tensors) {
    const size_t parameter = *ParameterOf(name);
    if (group_->rank() != root) {
      if (piece.numel() > 0) sent.push_back(group_->Send(piece, root));
      continue;
    }
    const Tensor whole =
        Empty(ParameterAt(parameter).shape(), {.dtype = piece.dtype(), .device = piece.device()});
    CopyInto(FlatRange(whole, RangeOn(parameter, root)), piece);
    std::vector<comm::Work> received;
    for (int rank = 0; rank < group_->size(); ++rank) {
      const ElementRange range = RangeOn(parameter, rank);
      if (rank == root || range.size() == 0) continue;
      received.push_back(group_->Recv(FlatRange(whole, range), rank));
    }
    comm::Work::All(std::move(received)).Wait();
    state.tensors.Insert(name, whole);
  }
  comm::Work::All(std::move(sent)).Wait();
  if (group_->rank() == root) state.numbers = pieces.numbers;
  return state;
}

optim::OptimizerState ZeroOptimizer::SaveState() const {
  throw FailedPreconditionError(
      absl::StrCat("ZeroOptimizer::SaveState: rank ", group_->rank(), " of ", group_->size(),
                   " has a part of the state only; call ConsolidateState() on every rank"));
}

void ZeroOptimizer::LoadState(const optim::OptimizerState& state) {
  const autograd::NoGradScope no_grad;
  optim::OptimizerState pieces;
  pieces.numbers = state.numbers;
  std::vector<std::string> wrong;
  for (const auto& [name, tensor] : state.tensors) {
    const std::optional<size_t> parameter = ParameterOf(name);
    if (!parameter.has_value()) {
      pieces.tensors.Insert(name, tensor);  // the inner optimizer lists what is unknown
    } else if (tensor.shape() != ParameterAt(*parameter).shape()) {
      wrong.push_back(absl::StrCat(name, " has shape ", ToString(tensor.shape()),
                                   " and the parameter ",
                                   ToString(ParameterAt(*parameter).shape())));
    } else {
      pieces.tensors.Insert(name, FlatRange(Detach(tensor), RangeOn(*parameter, group_->rank())));
    }
  }
  if (!wrong.empty()) {
    throw InvalidArgumentError(
        absl::StrCat("ZeroOptimizer::LoadState: the state does not fit; nothing was loaded\n  ",
                     absl::StrJoin(wrong, "\n  ")));
  }
  inner_->LoadState(pieces);
}

}  // namespace lockstep::strategies
