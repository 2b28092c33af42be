// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/subgroups.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/byte_strings.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {

std::shared_ptr<Communicator> Split(Communicator& parent, int color, int key) {
  // The sequence number tells the groups of one colour apart that are made one after another.
  const int64_t sequence = parent.sequence();
  const Tensor all = Empty({parent.size(), 3}, {DType::kInt64, {}});
  parent.AllGather(FromVector<int64_t>({color, key, sequence}, {3}), all).Wait();
  const std::vector<int64_t> values = all.ToVector<int64_t>();
  std::vector<std::pair<int64_t, int>> members;  // (key, parent's rank)
  int64_t number = 0;
  for (int rank = 0; rank < parent.size(); ++rank) {
    const int64_t* row = values.data() + 3 * rank;
    // Looked at when all ranks have it, so that none goes on while another throws.
    if (row[0] < kNoColor) {
      throw lockstep::InvalidArgumentError(
          absl::StrCat("Split: rank ", rank, " of group \"", parent.group_name(), "\" gives color ",
                       row[0], ": colors are not negative, but for kNoColor (-1)"));
    }
    number = std::max(number, row[2]);
    if (row[0] == color) members.emplace_back(row[1], rank);
  }
  if (color == kNoColor) return nullptr;
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& [order, rank] : members) ranks.push_back(rank);
  return parent.MakeSubgroup(absl::StrCat(number, ".", color), ranks);
}

std::shared_ptr<Communicator> Subgroup(Communicator& parent, const std::vector<int>& ranks) {
  const std::string text = absl::StrCat("[", absl::StrJoin(ranks, ", "), "]");
  const std::vector<std::string> all = AllGatherBytes(parent, text);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw lockstep::InvalidArgumentError(absl::StrCat("Subgroup: rank 0 of group \"",
                                                      parent.group_name(), "\" gives ranks ",
                                                      all[0], " and rank ", rank, " ", all[rank]));
  }
  // All ranks have the same list, and throw alike.
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty() || sorted.front() < 0 || sorted.back() >= parent.size() ||
      std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    throw lockstep::InvalidArgumentError(
        absl::StrCat("Subgroup: ranks ", text, " are not different ranks in [0, ", parent.size(),
                     "), at least one, of group \"", parent.group_name(), "\""));
  }
  const auto me = std::find(ranks.begin(), ranks.end(), parent.rank());
  const bool member = me != ranks.end();
  return Split(parent, member ? 0 : kNoColor, static_cast<int>(me - ranks.begin()));
}

}  // namespace lockstep::comm
