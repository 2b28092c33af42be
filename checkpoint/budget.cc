// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/budget.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/error.h"

namespace lockstep::checkpoint {
namespace {

constexpr size_t kMaximumFrontier = 4096;

std::string Mebibytes(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

void CheckUnit(const UnitCost& unit) {
  for (int mode = 0; mode < kUnitModeCount; ++mode) {
    const int64_t bytes = unit.saved_bytes[mode];
    const double seconds = unit.extra_seconds[mode];
    if (bytes >= 0 && bytes <= unit.saved_bytes[0] && std::isfinite(seconds) && seconds >= 0) {
      continue;
    }
    throw InvalidArgumentError(absl::StrCat(
        "PlanBudget: unit ", unit.name, ", ", UnitModeName(static_cast<UnitMode>(mode)), ": ",
        bytes, " bytes and ", seconds, " s more; give 0 to ", unit.saved_bytes[0],
        " bytes (what it saves without checkpointing) and a finite time"));
  }
}

// A choice for the first units.
struct State {
  int64_t bytes = 0;  // at the end of their forward pass
  int64_t peak = 0;
  double seconds = 0;
  int64_t previous = -1;  // index into the frontier before
  UnitMode mode = UnitMode::kSaveAll;
};

// The backward comes to a unit when those after it are gone: what is held then is what the earlier
// ones hold and, when it has been recomputed, everything that the unit itself saves.
State Extend(const State& state, int64_t index, const UnitCost& unit, UnitMode mode,
             int64_t rest_bytes) {
  State next;
  next.peak = std::max(state.peak, rest_bytes + state.bytes + unit.saved(UnitMode::kSaveAll));
  next.bytes = state.bytes + unit.saved(mode);
  next.seconds = state.seconds + unit.extra(mode);
  next.previous = index;
  next.mode = mode;
  return next;
}

bool Before(const State& a, const State& b) {
  if (a.bytes != b.bytes) return a.bytes < b.bytes;
  if (a.seconds != b.seconds) return a.seconds < b.seconds;
  return a.peak < b.peak;
}

// Leaves the states that are faster than every smaller one. (More bytes never mean a lower peak
// later, and the peak so far is within the limit.)
std::vector<State> Frontier(std::vector<State> states) {
  std::sort(states.begin(), states.end(), Before);
  std::vector<State> kept;
  for (const State& state : states) {
    if (kept.empty() || state.seconds < kept.back().seconds) kept.push_back(state);
  }
  if (kept.size() <= kMaximumFrontier) return kept;
  // The fastest of each range of bytes, and the smallest of all.
  std::vector<State> thinned = {kept.front()};
  const double first = static_cast<double>(kept.front().bytes);
  const double range = static_cast<double>(kept.back().bytes) - first + 1;
  int64_t bucket = -1;
  for (size_t i = 1; i < kept.size(); ++i) {
    const auto at = static_cast<int64_t>((static_cast<double>(kept[i].bytes) - first) / range *
                                         static_cast<double>(kMaximumFrontier));
    if (at == bucket) {
      thinned.back() = kept[i];
    } else {
      thinned.push_back(kept[i]);
    }
    bucket = at;
  }
  return thinned;
}

UnitMode SmallestMode(const UnitCost& unit) {
  UnitMode best = UnitMode::kSaveAll;
  for (const UnitMode mode : {UnitMode::kSelective, UnitMode::kRecomputeAll}) {
    if (unit.saved(mode) < unit.saved(best)) best = mode;
  }
  return best;
}

}  // namespace

absl::string_view UnitModeName(UnitMode mode) {
  switch (mode) {
    case UnitMode::kSaveAll:
      return "save all";
    case UnitMode::kSelective:
      return "selective";
    case UnitMode::kRecomputeAll:
      return "recompute all";
  }
  return "";
}

int64_t SmallestBudget(absl::Span<const UnitCost> units, int64_t rest_bytes) {
  State state;
  state.peak = rest_bytes;
  for (const UnitCost& unit : units) {
    state = Extend(state, 0, unit, SmallestMode(unit), rest_bytes);
  }
  return std::max(state.peak, rest_bytes + state.bytes);
}

BudgetPlan PlanBudget(absl::Span<const UnitCost> units, int64_t limit_bytes, int64_t rest_bytes) {
  if (limit_bytes < 1 || rest_bytes < 0) {
    throw InvalidArgumentError(
        absl::StrCat("PlanBudget: a limit of ", limit_bytes, " bytes with ", rest_bytes,
                     " outside of the units; the limit must be positive, the rest not negative"));
  }
  for (const UnitCost& unit : units) CheckUnit(unit);
  const int64_t smallest = SmallestBudget(units, rest_bytes);
  if (limit_bytes < smallest) {
    throw ResourceExhaustedError(absl::StrCat(
        "PlanBudget: ", limit_bytes, " bytes (", Mebibytes(limit_bytes), ") are too few for ",
        units.size(), " units and ", rest_bytes, " bytes outside of them; the smallest limit is ",
        smallest, " bytes (", Mebibytes(smallest), ")"));
  }
  std::vector<std::vector<State>> frontiers = {{State{0, rest_bytes, 0, -1, UnitMode::kSaveAll}}};
  for (const UnitCost& unit : units) {
    std::vector<State> states;
    const std::vector<State>& last = frontiers.back();
    for (size_t i = 0; i < last.size(); ++i) {
      for (int mode = 0; mode < kUnitModeCount; ++mode) {
        const State next =
            Extend(last[i], static_cast<int64_t>(i), unit, static_cast<UnitMode>(mode), rest_bytes);
        if (std::max(next.peak, rest_bytes + next.bytes) <= limit_bytes) states.push_back(next);
      }
    }
    frontiers.push_back(Frontier(std::move(states)));
  }
  BudgetPlan plan;
  const State& best = frontiers.back().back();  // the fastest
  plan.limit_bytes = limit_bytes;
  plan.rest_bytes = rest_bytes;
  plan.end_bytes = rest_bytes + best.bytes;
  plan.peak_bytes = std::max(best.peak, plan.end_bytes);
  plan.extra_seconds = best.seconds;
  plan.modes.resize(units.size());
  int64_t index = static_cast<int64_t>(frontiers.back().size()) - 1;
  for (size_t i = units.size(); i > 0; --i) {
    const State& state = frontiers[i][static_cast<size_t>(index)];
    plan.modes[i - 1] = state.mode;
    index = state.previous;
  }
  for (const UnitCost& unit : units) plan.names.push_back(unit.name);
  return plan;
}

std::string BudgetPlan::ToString() const {
  std::string text = absl::StrFormat(
      "checkpointing within %s: %s at the end of forward, %s at most, %.1f ms more a step",
      Mebibytes(limit_bytes), Mebibytes(end_bytes), Mebibytes(peak_bytes), extra_seconds * 1e3);
  for (size_t begin = 0; begin < modes.size();) {
    size_t end = begin;
    while (end < modes.size() && modes[end] == modes[begin]) ++end;
    absl::StrAppend(&text, "\n  ", names[begin]);
    if (end - begin == 2) absl::StrAppend(&text, ", ", names[end - 1]);
    if (end - begin > 2) absl::StrAppend(&text, " .. ", names[end - 1]);
    absl::StrAppend(&text, ": ", UnitModeName(modes[begin]));
    begin = end;
  }
  return text;
}

}  // namespace lockstep::checkpoint
