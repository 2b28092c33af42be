// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// DeepSpeed's schedules: a warm-up along a logarithm or a line, and then a constant, a line down or
// half a cosine. For runs that continue or repeat ones made there; WarmupCosine (cosine.h) is the
// plain choice.
//
//   optim::Schedule schedule(&optimizer, optim::WarmupDecayLr({.warmup_max_lr = 3e-4,
//                                                              .warmup_num_steps = 100,
//                                                              .total_num_steps = 2000}));
//
// With N = max(2, warmup_num_steps), the warm-up's part at iteration i < N is
//
//   w(i) = log(i + 1) / log(N)   (kLog)        w(i) = i / N   (kLinear)
//
// DeepSpeed counts iterations from the end of the first optimizer step on: before step n of ours
// (from 0) its iteration is n - 1, so that steps 0 and 1 both have what is before the rise.
#ifndef LOCKSTEP_NN_OPTIM_SCHEDULES_WARMUP_H_
#define LOCKSTEP_NN_OPTIM_SCHEDULES_WARMUP_H_

#include <cstdint>

#include "lockstep/nn/optim/schedule.h"

namespace lockstep::optim {

enum class WarmupType : uint8_t { kLog, kLinear };

struct WarmupLrOptions {
  double warmup_min_lr = 0;  // learning rates of all groups, whatever their `lr`
  double warmup_max_lr = 1e-3;
  int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::kLog;
};
// min + (max - min) * w(i), and max from iteration N on. Throws InvalidArgument for learning rates
// that are negative or not finite and negative warmup_num_steps.
ScheduleFunction WarmupLr(const WarmupLrOptions& options = {});

struct WarmupDecayLrOptions {
  double warmup_min_lr = 0;
  double warmup_max_lr = 1e-3;
  int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::kLog;
  int64_t total_num_steps = 0;  // required
};
// The same until iteration N, then min + (max - min) * max(0, (T - i) / max(1, T - N)) where T is
// total_num_steps. Throws as WarmupLr, and for T < N.
ScheduleFunction WarmupDecayLr(const WarmupDecayLrOptions& options);

struct WarmupCosineLrOptions {
  double warmup_min_ratio = 0;  // parts of each group's `lr`
  int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::kLog;
  double cos_min_ratio = 1e-4;
  int64_t total_num_steps = 0;  // required
};
// lr * (m + (1 - m) * w(i)) until iteration N, then lr * (c + (1 - c) * (1 + cos(pi * x)) / 2) with
// x = (i - N + 1) / (T - N); lr * c from iteration T - 1 on, where DeepSpeed's cosine would rise
// again. Step 0 has 0, as there. Throws InvalidArgument for ratios outside [0, 1] and T <= N.
ScheduleFunction WarmupCosineLr(const WarmupCosineLrOptions& options);

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_SCHEDULES_WARMUP_H_
