// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Schedules of a pipeline, as data: for each rank, the list of what it does, in order. The same
// object is validated, run (pipeline.h), simulated (simulate.h) and drawn (timeline.h).
//
//   Schedule schedule = OneForwardOneBackward(4, 8);        // 4 stages, 8 micro-batches
//   schedule.ranks[3][0];                                   // 3F0
//   WithTransfers(schedule).ranks[3][0];                    // 3RECV_F0<2
//
// A stage is a part of the model; a rank (a process, or a thread with a device) runs one stage or
// several. Stage s computes a micro-batch forward after the stages it takes inputs from, and
// backward after the stages it gave outputs to.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_SCHEDULE_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::pipeline {

enum class ActionKind : uint8_t {
  kForward,         // F
  kBackward,        // B: gradients of inputs and weights together
  kBackwardInput,   // I: of inputs only; what later needs a W
  kBackwardWeight,  // W: of weights, after I
  kSendForward,     // SEND_F: starts sending outputs to the peer stage
  kRecvForward,     // RECV_F: starts receiving inputs from the peer stage
  kSendBackward,    // SEND_B: starts sending gradients of inputs to the peer stage
  kRecvBackward,    // RECV_B: starts receiving gradients of outputs from the peer stage
};

// Transfers are started, never waited for, where they stand in the list: the action that needs what
// is received waits for it, and the end of the step waits for what is sent.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;
  int micro_batch = 0;
  int peer_stage = -1;  // of transfers

  friend bool operator==(const Action&, const Action&) = default;
};
bool IsTransfer(ActionKind kind);

// "2F0", "2I0", "1SEND_F0>2", "2RECV_F0<1".
std::string ToString(const Action& action);
// Throws InvalidArgument.
Action ParseAction(absl::string_view text);

// Outputs of stage `from` are inputs of stage `to`, from < to.
struct StageEdge {
  int from = 0;
  int to = 0;

  friend bool operator==(const StageEdge&, const StageEdge&) = default;
};
// 0 -> 1 -> ... -> stages - 1.
std::vector<StageEdge> ChainEdges(int stages);

struct Schedule {
  std::string name;  // "gpipe", "1f1b", "interleaved", "zb_h1", "forward", or a user's
  int micro_batches = 0;
  bool forward_only = false;
  std::vector<int> rank_of_stage;
  // Sorted, each once. A chain unless the model has skip connections.
  std::vector<StageEdge> edges;
  std::vector<std::vector<Action>> ranks;

  int stage_count() const { return static_cast<int>(rank_of_stage.size()); }
  int rank_count() const { return static_cast<int>(ranks.size()); }
};

// All of these have the edges of a chain and, unless they say otherwise, one stage a rank; they run
// any number of micro-batches from 1, add gradients in the order of micro-batches, and have no
// transfers yet (WithTransfers()). They throw InvalidArgument with the numbers.

// All forwards, then all backwards. Every micro-batch is in flight at once.
// GPipe, arXiv 1811.06965; bubble (p - 1) / (m + p - 1).
Schedule GPipe(int stages, int micro_batches);

// Warm-up of stages - 1 - s forwards, then forward and backward in turn. The same bubble; stage s
// has at most stages - s micro-batches in flight. PipeDream-flush, arXiv 2006.09503.
Schedule OneForwardOneBackward(int stages, int micro_batches);

// `stages_per_rank` stages a rank, at least 2: stage s is on rank s % ranks. Bubble
// (p - 1) / (v m + p - 1), for v times the transfers. Micro-batches must be a multiple of ranks.
// arXiv 2104.04473.
Schedule Interleaved(int ranks, int stages_per_rank, int micro_batches);

// 1F1B with backwards in two halves: I where B was, and W where the rank would wait, at stage s
// after the I of s micro-batches later. Idle time (p - 1) (F + I - W) a rank where W <= F, W <= I
// and m >= p. Up to its I, at most p - s micro-batches are in flight at stage s, as in 1F1B; up to
// its W, at most p at every stage, as at stage 0 of 1F1B. ZB-H1, arXiv 2401.10241.
Schedule ZeroBubbleH1(int stages, int micro_batches);

// Forwards only, for evaluation and inference: stage s is on rank rank_of_stage[s]. A rank with
// several stages runs, of what has its inputs, the latest stage first.
Schedule ForwardOnly(std::vector<int> rank_of_stage, int micro_batches);

// The schedule with a SEND after each action that has something for another rank, and on that rank
// a RECV one computation ahead of its use, in the order in which the peer sends. Transfers between
// stages of one rank are none. Transfers that the schedule has are dropped first; throws as
// Validate() does for what is left.
Schedule WithTransfers(Schedule schedule);

// Throws InvalidArgument naming the rank, the offending action and what is wrong, unless
// * each stage is on one of the ranks, each rank has a stage, edges go forward and are sorted,
//   every stage but the last has an outgoing and every one but the first an incoming edge;
// * each stage runs F of each micro-batch once and either B, or I and then W, of it once (none when
//   forward_only), all on its rank, and backward after its forward;
// * transfers, if there are any: each edge between two ranks has all four for each micro-batch (two
//   when forward_only), a SEND comes after what makes its data and a RECV before what uses it, and
//   between two ranks the n-th SEND is the n-th RECV;
// * the ranks can run their lists to the end: no two wait for each other.
void Validate(const Schedule& schedule);

// "name: micro_batches=8 edges=0>1,1>2 placement=0,1,2", with " forward_only" where it is, then a
// line a rank: "rank 0: 0F0 0F1 ...". Throws InvalidArgument for a name with a colon, # or line
// break, or white space around it.
std::string ToText(const Schedule& schedule);
// The inverse, which takes empty lines and lines that begin with # too. Does not validate. Throws
// InvalidArgument naming the line.
Schedule ParseSchedule(absl::string_view text);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_SCHEDULE_H_
