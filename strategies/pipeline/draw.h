// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Pictures of timelines, simulated or measured: a lane a rank, time to the right.
//
//   rank 0 |F0F1....B0--B1--| idle 33.3%
//   rank 1 |..F0B0--F1B1--..| idle 33.3%
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_DRAW_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_DRAW_H_

#include <string>

#include "lockstep/strategies/pipeline/timeline.h"

namespace lockstep::pipeline {

// Lanes of `width` characters for the whole makespan. A computation is its letter and micro-batch
// ("F12", with its stage before where ranks have several: "4F12"), filled up with '-'; the letter
// alone where that does not fit; idle time is '.'. Transfers are not drawn. Throws InvalidArgument
// unless width is 1 to 10000.
std::string DrawText(const Timeline& timeline, int width);

// An SVG document that refers to nothing: colours for F, B, I and W, paler for a rank's later
// stages, micro-batch numbers, transfers as thin bars below their sender's lane, the bubble in the
// title.
std::string DrawSvg(const Timeline& timeline);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_DRAW_H_
