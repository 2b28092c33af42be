// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Why a rank waits: what it waits for, and what those wait for in turn.
//
//   ExplainWait(wait_of_rank_1, waits_of)
//   -> rank 1 waits in group "b" for collective 3 (AllReduce(float32 x 5, sum)), which rank 0 has
//      not issued: rank 0 waits in group "a" for collective 5 (Barrier()), which rank 1 has not
//      issued: the ranks enter groups "a" and "b" in different order
#ifndef LOCKSTEP_COMM_WAIT_GRAPH_H_
#define LOCKSTEP_COMM_WAIT_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "lockstep/comm/signature.h"

namespace lockstep::comm {

// A collective or transfer of one rank that is not complete. Ranks are those of the job.
struct RankWait {
  int rank = 0;
  std::string group;
  CollectiveId op = CollectiveId::kBarrier;
  int64_t number = 0;  // sequence number, or that of the transfer between these two
  std::string call;    // "AllReduce(float32 x 5, sum)"
  // Who has not come; not empty.
  std::vector<int> missing = {};

  friend bool operator==(const RankWait&, const RankWait&) = default;
};

// The calls in which a thread of `rank` is blocked, as far as it is known. A rank that waits for
// nobody has none.
using WaitsOf = absl::FunctionRef<std::vector<RankWait>(int rank)>;

// Follows `wait` from rank to rank: to itself, if ranks wait for each other in a circle, else as
// far as it goes. Asks for the waits of each rank at most once.
std::string ExplainWait(const RankWait& wait, WaitsOf waits_of);

// Whether `wait` is part of a circle.
bool IsCircle(const RankWait& wait, WaitsOf waits_of);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_WAIT_GRAPH_H_
