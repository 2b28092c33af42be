// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// ReduceLrOnPlateau: lowers the learning rate when a metric no longer improves, as PyTorch's
// ReduceLROnPlateau.
//
//   optim::ReduceLrOnPlateau schedule(&optimizer, {.factor = 0.5, .patience = 3});
//   for (...) {                                  // epochs
//     ...
//     schedule.Step(validation_loss);
//   }
#ifndef LOCKSTEP_NN_OPTIM_SCHEDULES_REDUCE_ON_PLATEAU_H_
#define LOCKSTEP_NN_OPTIM_SCHEDULES_REDUCE_ON_PLATEAU_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/nn/optim/optimizer.h"

namespace lockstep::optim {

enum class PlateauMode : uint8_t { kMin, kMax };
enum class ThresholdMode : uint8_t { kRelative, kAbsolute };

struct ReduceLrOnPlateauOptions {
  PlateauMode mode = PlateauMode::kMin;  // whether smaller metrics are better, or larger
  double factor = 0.1;
  int64_t patience = 10;  // metrics without improvement that are borne before a reduction
  // How much better than the best a metric must be: by a part of it, or by that much.
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::kRelative;
  int64_t cooldown = 0;  // metrics after a reduction that do not count as bad
  // No rate goes below: one for all groups or one for each; none is 0.
  std::vector<double> min_lr = {};
  double epsilon = 1e-8;  // a reduction by no more than this is left out
};

// Not thread-safe.
class ReduceLrOnPlateau {
 public:
  // `optimizer` must outlive the schedule. Throws InvalidArgument for a null optimizer, a factor
  // outside [0, 1), other options that are negative or not finite, and a number of min_lr that is
  // neither 0, 1 nor that of the groups.
  ReduceLrOnPlateau(Optimizer* optimizer, const ReduceLrOnPlateauOptions& options = {});

  // Takes the next metric; NaN is never better.
  void Step(double metric);
  int64_t step() const { return step_; }

  // {"step", "bad_steps", "cooldown", "reductions"} and the tensor "best", float64 []. Options are
  // not part of it.
  OptimizerState SaveState() const;
  // Sets the loaded rates at once. Throws InvalidArgument that lists what is missing, unknown or
  // negative; nothing has changed then.
  void LoadState(const OptimizerState& state);

 private:
  bool IsBetter(double metric) const;
  // Makes the optimizer's rates those after all reductions.
  void Apply();

  Optimizer* optimizer_;
  ReduceLrOnPlateauOptions options_;
  int64_t step_ = 0;
  int64_t bad_steps_ = 0;   // since the best metric
  int64_t cooldown_ = 0;    // metrics left
  int64_t reductions_ = 0;  // so far
  double best_;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_SCHEDULES_REDUCE_ON_PLATEAU_H_
