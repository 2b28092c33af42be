// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/gradient_report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

GradientReport::GradientReport(std::vector<uint8_t> bits, size_t ranks)
    : bits_(std::move(bits)), ranks_(ranks), parameters_(bits_.size() / ranks) {}

GradientReport GradientReport::Exchange(const std::vector<uint8_t>& mine,
                                        comm::Communicator& group) {
  const int64_t count = static_cast<int64_t>(mine.size());
  Tensor all = Empty({group.size() * count}, {.dtype = DType::kUInt8, .device = Cpu()});
  group.AllGather(FromVector<uint8_t>(mine, {count}, {.device = Cpu()}), all).Wait();
  return GradientReport(all.ToVector<uint8_t>(), static_cast<size_t>(group.size()));
}

bool GradientReport::MissingEverywhere(size_t i) const {
  for (size_t rank = 0; rank < ranks_; ++rank) {
    if ((At(rank, i) & kGradientMissing) == 0) return false;
  }
  return true;
}

bool GradientReport::Has(size_t rank, size_t i, uint8_t bit) const {
  return (At(rank, i) & bit) != 0 && (At(rank, i) & kRankHasJoined) == 0;
}

bool GradientReport::Any(uint8_t bit) const {
  for (size_t rank = 0; rank < ranks_; ++rank) {
    for (size_t i = 0; i < parameters_; ++i) {
      if (Has(rank, i, bit)) return true;
    }
  }
  return false;
}

std::string GradientReport::Names(uint8_t bit, const NamedTensors& parameters) const {
  constexpr size_t kMost = 10;
  std::vector<std::string> names;
  size_t all = 0;
  for (size_t i = 0; i < parameters_; ++i) {
    std::vector<size_t> where;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      if (Has(rank, i, bit)) where.push_back(rank);
    }
    if (where.empty() || ++all > kMost) continue;
    names.push_back(absl::StrCat(parameters[i].first, " (on ", where.size(), " of ", ranks_,
                                 " ranks: ", absl::StrJoin(where, ", "), ")"));
  }
  std::string text = absl::StrJoin(names, ", ");
  if (all > kMost) absl::StrAppend(&text, " and ", all - kMost, " more");
  return text;
}

}  // namespace lockstep::strategies
