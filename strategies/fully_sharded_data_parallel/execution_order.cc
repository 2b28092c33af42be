// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/execution_order.h"

#include <algorithm>

namespace lockstep::strategies {

void ExecutionOrder::BeginForward(bool records) {
  current_.clear();
  records_ = records;
  follows_ = !recorded_.empty();
  if (records) done_.clear();
}

std::optional<size_t> ExecutionOrder::OnForward(size_t unit) {
  const size_t position = current_.size();
  current_.push_back(unit);
  follows_ = follows_ && position < recorded_.size() && recorded_[position] == unit;
  if (!follows_ || position + 1 >= recorded_.size()) return std::nullopt;
  return recorded_[position + 1];
}

void ExecutionOrder::OnForwardDone(size_t unit) {
  if (records_) done_.push_back(unit);
}

void ExecutionOrder::EndForward() {
  if (records_) recorded_ = current_;
}

std::vector<size_t> ExecutionOrder::Backward() const {
  std::vector<size_t> units;
  for (auto it = done_.rbegin(); it != done_.rend(); ++it) {
    if (std::find(units.begin(), units.end(), *it) == units.end()) units.push_back(*it);
  }
  return units;
}

std::optional<size_t> ExecutionOrder::NextInBackward(size_t unit) const {
  // The last use is differentiated first; what has been used before it comes next.
  const auto last = std::find(done_.rbegin(), done_.rend(), unit);
  if (last == done_.rend()) return std::nullopt;
  for (auto it = last + 1; it != done_.rend(); ++it) {
    if (*it != unit) return *it;
  }
  return std::nullopt;
}

}  // namespace lockstep::strategies
