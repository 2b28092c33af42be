// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Several schedules as one: one after the other (PyTorch's SequentialLR), or all at once
// (ChainedScheduler).
//
//   // 100 steps of warm-up, then a cosine.
//   optim::SequentialLr({optim::LinearLr({.start_factor = 0.1, .total_iters = 100}),
//                        optim::CosineAnnealingLr({.t_max = 900})}, {100})
#ifndef LOCKSTEP_NN_OPTIM_SCHEDULES_COMBINE_H_
#define LOCKSTEP_NN_OPTIM_SCHEDULES_COMBINE_H_

#include <cstdint>
#include <vector>

#include "lockstep/nn/optim/schedule.h"

namespace lockstep::optim {

// Both throw InvalidArgument for no schedules, an empty one, and ones for different numbers of
// groups.

// schedules[0] before step milestones[0], then schedules[1] from its own step 0 on, and so on. A
// schedule that leaves momenta alone gives the options' own while it lasts. Throws InvalidArgument
// unless there is one milestone fewer than schedules, and milestones are above 0 and rise.
ScheduleFunction SequentialLr(std::vector<ScheduleFunction> schedules,
                              std::vector<int64_t> milestones);

// Each schedule gets what the one before it gives as its `lr` (and momentum): factors multiply. A
// floor such as CosineAnnealingLr's eta_min is kept by the schedule that has it; PyTorch's
// recursive form lets the others shrink the part above it only from step to step.
ScheduleFunction ChainedLr(std::vector<ScheduleFunction> schedules);

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_SCHEDULES_COMBINE_H_
