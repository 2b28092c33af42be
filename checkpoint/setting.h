// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Checkpointing as the text of a program's flag, for models with a list of blocks.
//
//   CheckpointSetting setting = ParseCheckpointSetting("budget:512MiB");
//   std::string done = ApplyCheckpointSetting(setting, UnitsOf(model.transformer()->h()),
//                                             [&] { return model.Loss(ids, targets); });
//   std::cout << done << "\n";     // "checkpointing within 512.0 MiB: ..."
#ifndef LOCKSTEP_CHECKPOINT_SETTING_H_
#define LOCKSTEP_CHECKPOINT_SETTING_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/measure_units.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::checkpoint {

struct CheckpointSetting {
  enum class Kind : uint8_t { kNone, kBlock, kSelective, kBudget };

  Kind kind = Kind::kNone;
  int64_t budget_bytes = 0;  // kBudget only

  // As ParseCheckpointSetting takes it; a budget in bytes.
  std::string ToString() const;
  friend bool operator==(const CheckpointSetting&, const CheckpointSetting&) = default;
};

// "none", "block" (each block), "selective" (each block, contractions saved), or "budget:" and a
// size: a positive whole number and B, KB, MB, GB (powers of 1000) or KiB, MiB, GiB (of 1024).
// Throws InvalidArgument that quotes the text and lists these.
CheckpointSetting ParseCheckpointSetting(absl::string_view text);

// Applies it to the blocks and says what was done, in words. `trial` is for budgets only: a forward
// pass that returns the loss (MeasureUnits). Throws as MeasureUnits, PlanBudget and ApplyPlan do.
std::string ApplyCheckpointSetting(const CheckpointSetting& setting, const UnitList& blocks,
                                   const std::function<Tensor()>& trial);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SETTING_H_
