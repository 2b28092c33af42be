// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/group_state.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/on_every_rank.h"
#include "lockstep/state/state_writer.h"

namespace lockstep::state {
namespace {

constexpr char kCall[] = "SaveTrainingState";

void CheckNotTwice(const NamedTensors& whole, const GatheredTensors& gathered, const char* name) {
  if (whole.empty() || gathered.empty()) return;
  throw InvalidArgumentError(absl::StrCat(kCall, ": the state has tensors of the ", name,
                                          ", and others are to be gathered; give one of them"));
}

}  // namespace

std::string SaveTrainingState(const std::string& root, const TrainingState& state,
                              comm::Communicator& group, const SaveOptions& options,
                              const GatheredState& gathered) {
  const bool first = group.rank() == 0;
  std::optional<StateWriter> writer;
  const std::vector<std::string> begun = comm::OnEveryRank(group, kCall, [&]() -> std::string {
    CheckNotTwice(state.model, gathered.model, "model");
    CheckNotTwice(state.optimizer, gathered.optimizer, "optimizer");
    if (first) writer.emplace(root, state, options);
    return absl::StrCat(state.own.empty() ? "0" : "1", first ? writer->folder() : "");
  });
  const std::string folder = begun[0].substr(1);
  std::vector<std::string> checksums;
  if (std::any_of(begun.begin(), begun.end(), [](const auto& rank) { return rank[0] == '1'; })) {
    checksums = comm::OnEveryRank(
        group, kCall, [&] { return StateWriter::WriteRankFile(folder, group.rank(), state.own); });
  }
  if (!gathered.model.empty() || !gathered.optimizer.empty()) {
    comm::AllOrNone(group, kCall, [&] {
      const auto write = [&](const char* file, const GatheredTensors& tensors) {
        if (!tensors.empty()) WriteGathered(absl::StrCat(folder, "/", file), tensors, first);
      };
      write(kModelFile, gathered.model);
      write(kOptimizerFile, gathered.optimizer);
    });
  }
  return comm::OnEveryRank(group, kCall,
                           [&] { return first ? writer->Publish(checksums) : ""; })[0];
}

}  // namespace lockstep::state
