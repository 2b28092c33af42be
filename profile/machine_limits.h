// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What this machine can do at most, as far as this library's own best kernels reach it.
#ifndef LOCKSTEP_PROFILE_MACHINE_LIMITS_H_
#define LOCKSTEP_PROFILE_MACHINE_LIMITS_H_

namespace lockstep::profile {

struct MachineLimits {
  double flops_per_second = 0;  // 0: not known
  double bytes_per_second = 0;  // read and written
};

// Float32 matrix products of 1536^3 and copies of 64 MiB on the CPU, with the thread's number of
// intra-op threads; medians of five. Takes about half a second on two cores.
MachineLimits MeasureMachineLimits();

}  // namespace lockstep::profile

#endif  // LOCKSTEP_PROFILE_MACHINE_LIMITS_H_
