// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Checkpointing within a byte limit: for each of a list of units (the blocks of a model), whether
// to save everything, to save the contractions and recompute the rest, or to recompute all, such
// that the saved bytes of a step stay within the limit and the extra time is smallest.
//
//   std::vector<UnitCost> costs = MeasureUnits(blocks, [&] { model.Loss(ids, targets); });
//   BudgetPlan plan = PlanBudget(costs, 512 << 20);
//   ApplyPlan(blocks, plan);                          // measure_units.h
//   LOG(INFO) << plan.ToString();
//
// Planning is a pure function of the costs.
#ifndef LOCKSTEP_CHECKPOINT_BUDGET_H_
#define LOCKSTEP_CHECKPOINT_BUDGET_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lockstep::checkpoint {

enum class UnitMode : uint8_t { kSaveAll = 0, kSelective, kRecomputeAll };
inline constexpr int kUnitModeCount = 3;
// "save all", "selective", "recompute all".
absl::string_view UnitModeName(UnitMode mode);

// What a unit holds and costs in each mode. Units are in the order of the forward pass.
struct UnitCost {
  std::string name;
  // autograd::SavedBytes() that the unit adds by the end of the forward pass.
  std::array<int64_t, kUnitModeCount> saved_bytes{};
  // What one step takes longer than with kSaveAll (0 there).
  std::array<double, kUnitModeCount> extra_seconds{};

  int64_t& saved(UnitMode mode) { return saved_bytes[static_cast<int>(mode)]; }
  int64_t saved(UnitMode mode) const { return saved_bytes[static_cast<int>(mode)]; }
  double& extra(UnitMode mode) { return extra_seconds[static_cast<int>(mode)]; }
  double extra(UnitMode mode) const { return extra_seconds[static_cast<int>(mode)]; }
};

struct BudgetPlan {
  std::vector<std::string> names;
  std::vector<UnitMode> modes;  // one a unit
  int64_t limit_bytes = 0;
  int64_t rest_bytes = 0;
  int64_t end_bytes = 0;   // saved at the end of the forward pass, `rest_bytes` included
  int64_t peak_bytes = 0;  // largest in a step: while a unit is recomputed, it holds all of its own
  double extra_seconds = 0;

  // One line with the totals, and one for each run of units of one mode:
  //   checkpointing within 64.0 MiB: 41.2 MiB at the end of forward, 52.0 MiB at most, 12.5 ms more
  //     h.0 .. h.3: recompute all
  //     h.4, h.5: selective
  std::string ToString() const;
};

// `rest_bytes`: what the model saves outside of the units, taken to be there all the time.
//
// The smallest extra time is exact as long as no more than 4096 choices are worth a look (so always
// with a dozen units, or with equal ones); beyond that it is within a few percent, and the limit
// holds all the same. Of equally fast choices the one with fewer bytes is taken.
//
// Throws InvalidArgument for negative or not finite costs, a mode that saves more bytes than
// kSaveAll, a limit below 1 or negative rest_bytes; ResourceExhausted, which names the smallest
// possible limit, when the limit is below that.
BudgetPlan PlanBudget(absl::Span<const UnitCost> units, int64_t limit_bytes,
                      int64_t rest_bytes = 0);

// The smallest limit that PlanBudget accepts for these.
int64_t SmallestBudget(absl::Span<const UnitCost> units, int64_t rest_bytes = 0);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_BUDGET_H_
