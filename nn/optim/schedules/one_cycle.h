// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The one-cycle policy (Smith and Topin 2018), as PyTorch's OneCycleLR: one rise and one long fall
// of the learning rate, with the momentum the other way round.
//
//   optim::Sgd optimizer(model.NamedParameters(), {.lr = 0.1, .momentum = 0.9});
//   optim::Schedule schedule(&optimizer, optim::OneCycleLr({.total_steps = 1000}));
#ifndef LOCKSTEP_NN_OPTIM_SCHEDULES_ONE_CYCLE_H_
#define LOCKSTEP_NN_OPTIM_SCHEDULES_ONE_CYCLE_H_

#include <cstdint>
#include <vector>

#include "lockstep/nn/optim/schedule.h"

namespace lockstep::optim {

enum class AnnealStrategy : uint8_t { kCosine, kLinear };

struct OneCycleLrOptions {
  int64_t total_steps = 0;  // of the optimizer; required
  // The peak: one for all groups or one for each; none takes each group's own `lr`.
  std::vector<double> max_lr = {};
  double pct_start = 0.3;  // the part of the steps that rises
  AnnealStrategy anneal_strategy = AnnealStrategy::kCosine;
  // Falls from max_momentum to base_momentum while the rate rises, and back. It is the `momentum`
  // of SGD and RMSprop and the `beta1` of Adam and AdamW; another optimizer needs this off.
  bool cycle_momentum = true;
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  double div_factor = 25;         // the first rate is the peak over this
  double final_div_factor = 1e4;  // the last rate is the first over this
  bool three_phase = false;       // fall to the first rate as fast as it rose, then to the last
};
// The value of step total_steps - 1 holds at total_steps too, and a step beyond throws OutOfRange.
// Throws InvalidArgument for total_steps < 1, a pct_start outside [0, 1] (with three_phase, above
// 0.5), momenta outside [0, 1), rates that are negative or not finite, and factors that are not
// above 0.
ScheduleFunction OneCycleLr(const OneCycleLrOptions& options);

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_SCHEDULES_ONE_CYCLE_H_
