// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/balanced_partition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr double kEqualWithin = 1e-9;
constexpr double kImpossible = std::numeric_limits<double>::infinity();

bool Less(double a, double b) { return a < b - kEqualWithin * std::max(std::abs(a), std::abs(b)); }

void CheckCosts(absl::Span<const double> costs, int parts) {
  for (size_t i = 0; i < costs.size(); ++i) {
    if (!std::isfinite(costs[i]) || costs[i] < 0) {
      throw InvalidArgumentError(absl::StrCat("BalancedPartition: the cost of block ", i, " of ",
                                              costs.size(), " is ", costs[i],
                                              "; costs are finite and at least 0"));
    }
  }
  if (parts < 1 || static_cast<size_t>(parts) > costs.size()) {
    throw InvalidArgumentError(
        absl::StrCat("BalancedPartition: ", parts, " parts of ", costs.size(),
                     " blocks; each part needs a block, and there must be a part"));
  }
}

// sums[i] is the cost of the blocks before block i in units of the largest: no square overflows.
std::vector<double> PrefixSums(absl::Span<const double> costs) {
  const double largest = *std::max_element(costs.begin(), costs.end());
  std::vector<double> sums = {0};
  for (double cost : costs) sums.push_back(sums.back() + (largest > 0 ? cost / largest : 1));
  return sums;
}

// The best way to cut the blocks from each block on into a number of parts.
struct Suffixes {
  std::vector<double> value;   // by first block; kImpossible where there are too few blocks
  std::vector<int64_t> count;  // blocks of the first of the parts
};

// From the best ways with one part less. `add(cost of the first part, value of the rest)`.
template <typename Add>
Suffixes OnePartMore(const std::vector<double>& sums, const Suffixes& rest, const Add& add) {
  const int64_t blocks = static_cast<int64_t>(sums.size()) - 1;
  Suffixes best{std::vector<double>(sums.size(), kImpossible),
                std::vector<int64_t>(sums.size(), 0)};
  for (int64_t from = 0; from < blocks; ++from) {
    // From long first parts to short ones: of equal ways, the first is kept.
    for (int64_t to = blocks; to > from; --to) {
      const double value = add(sums[to] - sums[from], rest.value[to]);
      const bool better =
          best.value[from] == kImpossible ? value < kImpossible : Less(value, best.value[from]);
      if (!better) continue;
      best.value[from] = value;
      best.count[from] = to - from;
    }
  }
  return best;
}

// By number of parts, from 0.
template <typename Add>
std::vector<Suffixes> Solve(const std::vector<double>& sums, int parts, const Add& add) {
  Suffixes none{std::vector<double>(sums.size(), kImpossible),
                std::vector<int64_t>(sums.size(), 0)};
  none.value.back() = 0;
  std::vector<Suffixes> solutions = {none};
  for (int part = 0; part < parts; ++part) {
    solutions.push_back(OnePartMore(sums, solutions.back(), add));
  }
  return solutions;
}

}  // namespace

std::vector<int64_t> BalancedPartition(absl::Span<const double> costs, int parts) {
  CheckCosts(costs, parts);
  const std::vector<double> sums = PrefixSums(costs);
  // The largest part first: of two ways for a suffix, the one with fewer squares may have the
  // larger part, so both cannot be found in one pass.
  const double largest =
      Solve(sums, parts, [](double cost, double rest) { return std::max(cost, rest); })
          .back()
          .value[0];
  const std::vector<Suffixes> solutions = Solve(sums, parts, [largest](double cost, double rest) {
    return Less(largest, cost) ? kImpossible : cost * cost + rest;
  });
  std::vector<int64_t> counts;
  int64_t from = 0;
  for (int left = parts; left > 0; --left) {
    counts.push_back(solutions[left].count[from]);
    from += counts.back();
  }
  return counts;
}

}  // namespace lockstep
