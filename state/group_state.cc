// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/group_state.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/byte_strings.h"
#include "lockstep/state/state_writer.h"

namespace lockstep::state {
namespace {

// What each rank's `work` returns, on every rank; throws on every rank when one of them throws.
std::vector<std::string> OnEveryRank(comm::Communicator& group,
                                     const std::function<std::string()>& work) {
  constexpr char kDone = '+', kFailed = '-';
  std::optional<Error> failure;
  std::string mine;
  try {
    mine = kDone + work();
  } catch (const Error& error) {
    failure = error;
    mine = kFailed + error.message();
  }
  std::vector<std::string> all = comm::AllGatherBytes(group, mine);
  if (failure) throw *failure;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].front() == kFailed) {
      throw AbortedError(
          absl::StrCat("SaveTrainingState: rank ", rank, " could not save: ", all[rank].substr(1)));
    }
    all[rank].erase(0, 1);
  }
  return all;
}

}  // namespace

std::string SaveTrainingState(const std::string& root, const TrainingState& state,
                              comm::Communicator& group, const SaveOptions& options) {
  const bool first = group.rank() == 0;
  std::optional<StateWriter> writer;
  const std::vector<std::string> begun = OnEveryRank(group, [&]() -> std::string {
    if (first) writer.emplace(root, state, options);
    return absl::StrCat(state.own.empty() ? "0" : "1", first ? writer->folder() : "");
  });
  std::vector<std::string> checksums;
  if (std::any_of(begun.begin(), begun.end(), [](const auto& rank) { return rank[0] == '1'; })) {
    checksums = OnEveryRank(group, [&] {
      return StateWriter::WriteRankFile(begun[0].substr(1), group.rank(), state.own);
    });
  }
  return OnEveryRank(group, [&] { return first ? writer->Publish(checksums) : ""; })[0];
}

}  // namespace lockstep::state
