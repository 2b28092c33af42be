// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Schedules that multiply the `lr`s by a given factor; the closed forms of PyTorch's ConstantLR,
// LinearLR and LambdaLR. The first two are warm-ups that end at `lr` itself.
//
//   optim::Schedule schedule(&optimizer, optim::LinearLr({.start_factor = 0.01,
//                                                         .total_iters = 500}));
#ifndef LOCKSTEP_NN_OPTIM_SCHEDULES_FACTOR_H_
#define LOCKSTEP_NN_OPTIM_SCHEDULES_FACTOR_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/nn/optim/schedule.h"

namespace lockstep::optim {

struct ConstantLrOptions {
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
};
// `factor` before step total_iters, 1 from there on. Throws InvalidArgument for a factor outside
// [0, 1] or negative total_iters.
ScheduleFunction ConstantLr(const ConstantLrOptions& options = {});

struct LinearLrOptions {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  int64_t total_iters = 5;
};
// From start_factor at step 0 on a straight line to end_factor at step total_iters, where it stays.
// Throws InvalidArgument for a start_factor outside (0, 1], an end_factor outside [0, 1] or
// total_iters < 1.
ScheduleFunction LinearLr(const LinearLrOptions& options = {});

// A factor for each group; one function for all groups is a ScheduleFunction itself. Throws
// InvalidArgument for no functions or a null one.
ScheduleFunction LambdaLr(std::vector<std::function<double(int64_t step)>> factors);

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_SCHEDULES_FACTOR_H_
