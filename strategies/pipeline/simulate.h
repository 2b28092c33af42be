// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How long a schedule takes and what it keeps in memory, from what its parts cost.
//
//   Costs costs = UniformCosts(4, {.forward = 1, .backward_input = 1, .backward_weight = 1});
//   Simulate(OneForwardOneBackward(4, 8), costs).bubble;  // 3 / 11
//
// Each rank runs its list in order, an action as soon as the one before has ended and what it needs
// is there. Sums are of the given costs and nothing else: integer costs give exact times.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_SIMULATE_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_SIMULATE_H_

#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/timeline.h"

namespace lockstep::pipeline {

// Of one stage and micro-batch. B takes backward_input + backward_weight.
struct ComputeSeconds {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  // What a whole B takes is known and stands in backward_input; its halves are not, and schedules
  // that have I and W are refused.
  bool only_whole_backward = false;
};

struct StageCosts {
  ComputeSeconds compute = {};
  // What a micro-batch keeps from the beginning of F to the end of B or W (of F, if the schedule
  // has forwards only), and the share of it, 0 to 1, that the end of I frees already.
  double activation_bytes = 0;
  double share_freed_by_input = 0;
  // What the stage always keeps: parameters, gradients, optimizer state.
  double static_bytes = 0;
};

// A transfer begins when both its SEND and its RECV have been started, occupies the link for
// bytes / bytes_per_second, and has arrived latency_seconds after that.
struct Link {
  double latency_seconds = 0;
  double bytes_per_second = std::numeric_limits<double>::infinity();
  // A transfer begins only when the one before, of the same sender and receiver, has left the link.
  // Else they all have the whole bandwidth.
  bool serial = false;
};

struct Costs {
  std::vector<StageCosts> stages;
  // (stage, micro-batch): instead of stages[stage].compute; what was measured, or uneven sizes.
  std::map<std::pair<int, int>, ComputeSeconds> micro_batches;
  // (from, to) of an edge: bytes of a micro-batch, of outputs forward and of gradients backward.
  std::map<std::pair<int, int>, double> edge_bytes;
  // Between any two ranks, but for those (sender, receiver) that are in `links`.
  Link link;
  std::map<std::pair<int, int>, Link> links;
};

// The same for each stage; no bytes, links that take no time.
Costs UniformCosts(int stages, const ComputeSeconds& compute);

// Costs whose `micro_batches` are the durations in `measured`; where an action occurs several
// times, the last. So Simulate() predicts another schedule of the same stages, or tells how much of
// a measured bubble is the schedule's. A whole B tells nothing of I and W: to predict a schedule
// that has them, measure one that has (ZB-H1), or say which share of each B is W's, 0 to 1 (a
// half, where matrix products are all that counts). Throws InvalidArgument for another share.
Costs MeasuredCosts(const Timeline& measured, std::optional<double> weight_share = std::nullopt);

// Transfers are those of the schedule, or where it has none those of WithTransfers(); each is a
// span of its sender's, by its SEND. Throws InvalidArgument as Validate() does, for costs of
// stages, micro-batches, edges or ranks that the schedule lacks, for another number of stages, for
// negative or not finite costs, and for an I or W of which only the whole B is known.
Timeline Simulate(const Schedule& schedule, const Costs& costs);

// The most bytes that each rank keeps at once: static bytes of its stages and activations.
// Simulate() has filled it into Timeline::peak_bytes; for a measured timeline call it.
std::vector<double> PeakBytes(const Timeline& timeline, const std::vector<StageCosts>& stages);

// Throws InvalidArgument unless each rank r can run its list within limit_bytes[r], naming the
// first that cannot, its limit, the bytes that it keeps, the action at which it keeps the most and
// what to do; infinity is no limit. Also as Validate(), and for costs and limits of another number
// of stages and ranks, or that are no bytes.
void CheckMemory(const Schedule& schedule, const std::vector<StageCosts>& stages,
                 const std::vector<double>& limit_bytes);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_SIMULATE_H_
