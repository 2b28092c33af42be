// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Schedules along a cosine (Loshchilov and Hutter 2017): PyTorch's CosineAnnealingLR and
// CosineAnnealingWarmRestarts in closed form, and one warm-up and half a cosine as language models
// are trained with.
//
//   optim::Schedule schedule(&optimizer, optim::CosineAnnealingLr({.t_max = 1000}));
#ifndef LOCKSTEP_NN_OPTIM_SCHEDULES_COSINE_H_
#define LOCKSTEP_NN_OPTIM_SCHEDULES_COSINE_H_

#include <cstdint>

#include "lockstep/nn/optim/schedule.h"

namespace lockstep::optim {

struct CosineAnnealingLrOptions {
  int64_t t_max = 0;   // steps from `lr` down to eta_min; required
  double eta_min = 0;  // a learning rate, not a factor
};
// eta_min + (lr - eta_min) * (1 + cos(pi * step / t_max)) / 2: after t_max it rises again. Throws
// InvalidArgument for t_max < 1 or an eta_min that is negative or not finite.
ScheduleFunction CosineAnnealingLr(const CosineAnnealingLrOptions& options);

struct CosineAnnealingWarmRestartsOptions {
  int64_t t_0 = 0;     // steps before the first restart; required
  int64_t t_mult = 1;  // each period is that many times the one before
  double eta_min = 0;
};
// The same from `lr` to eta_min in each period, and then at once from `lr` again. Throws
// InvalidArgument for t_0 < 1, t_mult < 1 or an eta_min that is negative or not finite.
ScheduleFunction CosineAnnealingWarmRestarts(const CosineAnnealingWarmRestartsOptions& options);

struct WarmupCosineOptions {
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  double final_fraction = 0;
};
// The factor rises linearly, from 1 / warmup_steps at step 0 to 1 at step warmup_steps - 1; then
// f + (1 - f) * (1 + cos(pi * x)) / 2, where x goes from 0 at step warmup_steps to 1 at
// total_steps; f from there on. Throws InvalidArgument unless 0 <= warmup_steps <= total_steps,
// total_steps >= 1 and 0 <= f <= 1.
ScheduleFunction WarmupCosine(const WarmupCosineOptions& options);

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_SCHEDULES_COSINE_H_
