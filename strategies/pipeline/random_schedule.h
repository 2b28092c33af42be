// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Valid schedules that nobody would write, for tests of whatever runs any valid schedule.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_RANDOM_SCHEDULE_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_RANDOM_SCHEDULE_H_

#include <random>
#include <vector>

#include "lockstep/strategies/pipeline/schedule.h"

namespace lockstep::pipeline {

struct RandomScheduleOptions {
  int stages = 4;
  int ranks = 3;  // at most stages
  int micro_batches = 5;
  // Some stages run backward as I and W, for some micro-batches; else all as B.
  bool split_backward = true;
  // Each stage adds gradients (B or W) and runs forwards in the order of micro-batches, as a run
  // that is compared bit for bit needs.
  bool ordered = true;
  bool forward_only = false;
  // Empty: a chain.
  std::vector<StageEdge> edges = {};
};

// Each stage is on a random rank; each rank's list is a random order that can run to its end. No
// transfers. The same state of `random` gives the same schedule.
Schedule RandomSchedule(const RandomScheduleOptions& options, std::mt19937& random);

// A chain of which some edges may be missing, and random edges that skip stages, such that each
// stage but the first has inputs and each but the last gives outputs.
std::vector<StageEdge> RandomEdges(int stages, std::mt19937& random);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_RANDOM_SCHEDULE_H_
