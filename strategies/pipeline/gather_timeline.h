// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// One timeline of a run over a communicator, from what each rank has measured on its own clock.
//
//   pipeline.Step(...);
//   const Timeline all = GatherTimeline(*world, pipeline.spans(), pipeline.began_ns());
//   if (world->rank() == 0) std::cout << DrawText(all, /*width=*/100);
//
// Ranks begin a run at different times, and hosts count time from different points. Each rank's
// clock is compared with rank 0's by messages there and back; what is left unknown is half of the
// fastest of them, some microseconds on one host and tens to hundreds between two. Clocks that
// agree within that are taken to be one: those of ranks on one host are, so that what a rank
// received from another is never drawn before it was sent.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_GATHER_TIMELINE_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_GATHER_TIMELINE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/strategies/pipeline/timeline.h"

namespace lockstep::pipeline {

struct ClockOffset {
  int64_t nanoseconds = 0;  // this rank's clock less rank 0's
  int64_t error = 0;        // by which that may be wrong, either way; 0 on rank 0
};

// Every rank of `group` calls it, with its clock, while nobody else sends in it. Some 20 messages
// to and from rank 0 for each other rank. Throws what the group throws.
ClockOffset MeasureClockOffset(comm::Communicator& group, const std::function<int64_t()>& clock);

// The spans of all ranks of `group`, on rank 0's clock, on every rank. `own` are this rank's, in
// seconds since `began_ns` of MonotonicNanoseconds(). Every rank calls it, as MeasureClockOffset,
// soon after the run: clocks of two hosts drift apart by microseconds a second.
Timeline GatherTimeline(comm::Communicator& group, const std::vector<Span>& own, int64_t began_ns);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_GATHER_TIMELINE_H_
