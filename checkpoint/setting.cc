// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/setting.h"

#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::pair<absl::string_view, int64_t> kUnits[] = {
    {"KiB", 1 << 10}, {"MiB", 1 << 20},   {"GiB", 1 << 30}, {"KB", 1000},
    {"MB", 1000000},  {"GB", 1000000000}, {"B", 1}};  // "B" ends them all, so it comes last

// 0 when it is no size.
int64_t ParseSize(absl::string_view text) {
  for (const auto& [suffix, factor] : kUnits) {
    absl::string_view digits = text;
    if (!absl::ConsumeSuffix(&digits, suffix)) continue;
    int64_t count = 0;
    if (digits.find_first_not_of("0123456789") != absl::string_view::npos) return 0;
    if (!absl::SimpleAtoi(digits, &count) || count < 1) return 0;
    if (count > std::numeric_limits<int64_t>::max() / factor) return 0;
    return count * factor;
  }
  return 0;
}

BudgetPlan UniformPlan(size_t count, UnitMode mode) {
  BudgetPlan plan;
  plan.modes.assign(count, mode);
  return plan;
}

}  // namespace

std::string CheckpointSetting::ToString() const {
  switch (kind) {
    case Kind::kNone:
      return "none";
    case Kind::kBlock:
      return "block";
    case Kind::kSelective:
      return "selective";
    case Kind::kBudget:
      return absl::StrCat("budget:", budget_bytes, "B");
  }
  return "";
}

CheckpointSetting ParseCheckpointSetting(absl::string_view text) {
  using Kind = CheckpointSetting::Kind;
  if (text == "none") return {Kind::kNone, 0};
  if (text == "block") return {Kind::kBlock, 0};
  if (text == "selective") return {Kind::kSelective, 0};
  absl::string_view size = text;
  if (absl::ConsumePrefix(&size, "budget:")) {
    if (const int64_t bytes = ParseSize(size); bytes > 0) return {Kind::kBudget, bytes};
  }
  throw InvalidArgumentError(absl::StrCat(
      "checkpointing \"", text,
      "\" is unknown; give none, block, selective or budget:SIZE, where SIZE is a positive whole "
      "number with B, KB, MB, GB, KiB, MiB or GiB (budget:512MiB)"));
}

std::string ApplyCheckpointSetting(const CheckpointSetting& setting, const UnitList& blocks,
                                   const std::function<Tensor()>& trial) {
  switch (setting.kind) {
    case CheckpointSetting::Kind::kNone:
      return "no checkpointing";
    case CheckpointSetting::Kind::kBlock:
      ApplyPlan(blocks, UniformPlan(blocks.size(), UnitMode::kRecomputeAll));
      return absl::StrCat("checkpointing each of ", blocks.size(), " blocks");
    case CheckpointSetting::Kind::kSelective:
      ApplyPlan(blocks, UniformPlan(blocks.size(), UnitMode::kSelective));
      return absl::StrCat("checkpointing each of ", blocks.size(),
                          " blocks, with the results of contractions saved");
    case CheckpointSetting::Kind::kBudget:
      break;
  }
  const UnitMeasurement measured = MeasureUnits(blocks, trial);
  const BudgetPlan plan = PlanBudget(measured.costs, setting.budget_bytes, measured.rest_bytes);
  ApplyPlan(blocks, plan);
  return plan.ToString();
}

}  // namespace lockstep::checkpoint
