// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Whether this thread runs a checkpointed region for the second time. A module whose forward pass
// has an effect besides its result asks, and has the effect once:
//
//   Tensor Forward(const Tensor& x) override {
//     ...
//     if (training() && !checkpoint::Recomputing()) UpdateRunningMean(mean);
//     return y;
//   }
#ifndef LOCKSTEP_CHECKPOINT_RECOMPUTING_H_
#define LOCKSTEP_CHECKPOINT_RECOMPUTING_H_

namespace lockstep::checkpoint {

// Part of thread state: true in threads that a region starts under a copy of its state, too.
bool Recomputing();

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_RECOMPUTING_H_
