// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// When each action of a schedule ran: measured by a run (pipeline.h) or computed (simulate.h).
//
//   Timeline timeline = MakeTimeline(spans, /*ranks=*/4);
//   timeline.bubble;             // 0.27: the share of the ranks' time in which nothing was
//   computed timeline.peak_in_flight[0];  // micro-batches whose activations stage 0 kept at once
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_TIMELINE_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_TIMELINE_H_

#include <string>
#include <vector>

#include "lockstep/strategies/pipeline/schedule.h"

namespace lockstep::pipeline {

// Of a computation from its beginning, waits before it left out, to its end; of a transfer while it
// was under way, on the rank that started it.
struct Span {
  int rank = 0;
  Action action;
  double start_seconds = 0;
  double end_seconds = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

struct Timeline {
  std::string name;  // of the schedule, for drawings
  int ranks = 0;
  // By rank, then by start; the first computation of all starts at 0.
  std::vector<Span> spans;
  double makespan_seconds = 0;       // to the end of the last computation
  std::vector<double> busy_seconds;  // of each rank: computations. Transfers are no work of a rank.
  std::vector<double> idle_seconds;  // makespan - busy
  double bubble = 0;                 // all idle / (ranks * makespan); 0 if there is no computation
  // Of each stage: the most micro-batches at once between the beginning of F and the end of B or W,
  // or of F where nothing runs backward.
  std::vector<int> peak_in_flight;
  // Of each rank, where costs in bytes are known (simulate.h); else empty.
  std::vector<double> peak_bytes;
};

// Spans in any order, on one clock. Throws InvalidArgument naming the span for a rank that is not
// in [0, ranks), an end before the start, and computations of one rank that overlap.
Timeline MakeTimeline(std::vector<Span> spans, int ranks);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_TIMELINE_H_
