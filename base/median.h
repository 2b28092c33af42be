// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What to report of repeated measurements: one late wake-up must not decide.
//
//   const double seconds = Median(seconds_of_steps);
#ifndef LOCKSTEP_BASE_MEDIAN_H_
#define LOCKSTEP_BASE_MEDIAN_H_

#include <vector>

namespace lockstep {

// The middle value, or the mean of the two in the middle; NaN where there are no values.
double Median(std::vector<double> values);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_MEDIAN_H_
