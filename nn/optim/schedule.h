// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Learning-rate schedules: a pure function of the step, and the object that applies it.
//
//   optim::AdamW optimizer(model.NamedParameters(), {.lr = 2e-3});
//   optim::Schedule schedule(&optimizer, optim::WarmupCosine({.warmup_steps = 50,
//                                                             .total_steps = 2200,
//                                                             .final_fraction = 0.1}));
//   for (...) {
//     ...
//     optimizer.Step();
//     schedule.Step();
//   }
//
// A schedule gives a factor of the optimizer's `lr`s and never changes these. What it saves is its
// step alone, so that after loading, the optimizer's state first, last or not at all, the rates are
// those of an uninterrupted run.
#ifndef LOCKSTEP_NN_OPTIM_SCHEDULE_H_
#define LOCKSTEP_NN_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/nn/optim/optimizer.h"

namespace lockstep::optim {

// The factor for step 0, 1, 2, ... (the number of optimizer steps done so far).
using ScheduleFunction = std::function<double(int64_t step)>;

struct WarmupCosineOptions {
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  double final_fraction = 0;
};
// Rises linearly, from 1 / warmup_steps at step 0 to 1 at step warmup_steps - 1; then
// f + (1 - f) * (1 + cos(pi * x)) / 2, where x goes from 0 at step warmup_steps to 1 at
// total_steps; f from there on. Throws InvalidArgument unless 0 <= warmup_steps <= total_steps,
// total_steps >= 1 and 0 <= f <= 1.
ScheduleFunction WarmupCosine(const WarmupCosineOptions& options);

// gamma to the power of the number of milestones that are <= step. Throws InvalidArgument for
// milestones that are negative or do not rise, or gamma <= 0.
ScheduleFunction MultiStep(std::vector<int64_t> milestones, double gamma);

// Applies a ScheduleFunction to one optimizer. Not thread-safe.
class Schedule {
 public:
  // `optimizer` must outlive the schedule. Sets the factor of step 0. Throws InvalidArgument for a
  // null argument or a function that returns a negative or non-finite factor.
  Schedule(Optimizer* optimizer, ScheduleFunction function);

  // Counts one optimizer step as done and sets the factor of the next. Throws as the constructor.
  void Step();
  int64_t step() const { return step_; }

  // {"step": n}, without tensors.
  OptimizerState SaveState() const;
  // Sets the factor of the loaded step at once. Throws InvalidArgument for anything but one step
  // that is not negative; nothing has changed then.
  void LoadState(const OptimizerState& state);

 private:
  void MoveTo(int64_t step);

  Optimizer* optimizer_;
  ScheduleFunction function_;
  int64_t step_ = 0;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_SCHEDULE_H_
