// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Schedules that multiply every group's `lr` by powers of gamma; the closed forms of PyTorch's
// StepLR, MultiStepLR and ExponentialLR.
//
//   optim::Schedule schedule(&optimizer, optim::StepLr(30));            // a tenth every 30 steps
//   optim::Schedule schedule(&optimizer, optim::MultiStepLr({30, 80}, 0.5));
#ifndef LOCKSTEP_NN_OPTIM_SCHEDULES_DECAY_H_
#define LOCKSTEP_NN_OPTIM_SCHEDULES_DECAY_H_

#include <cstdint>
#include <vector>

#include "lockstep/nn/optim/schedule.h"

namespace lockstep::optim {

// All throw InvalidArgument for a gamma that is not finite and above 0.

// gamma^(step / step_size), whole steps. Throws InvalidArgument for step_size < 1.
ScheduleFunction StepLr(int64_t step_size, double gamma = 0.1);

// gamma to the power of the number of milestones that are <= step. Throws InvalidArgument for
// milestones that are negative or do not rise.
ScheduleFunction MultiStepLr(std::vector<int64_t> milestones, double gamma = 0.1);

// gamma^step.
ScheduleFunction ExponentialLr(double gamma);

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_SCHEDULES_DECAY_H_
