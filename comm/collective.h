// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What can be said about a collective: the options of each, and the validated call on its way to a
// backend. comm/communicator.h has the calls.
#ifndef LOCKSTEP_COMM_COLLECTIVE_H_
#define LOCKSTEP_COMM_COLLECTIVE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/comm/signature.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {

// `timeout` absent: the group's. It runs from the moment the collective starts on this rank; for a
// transfer, from the moment it is the oldest of its pair and direction.
// `factor`: of ReduceOp::kPreMultipliedSum, the same on all ranks.
// `counts`: the elements of each rank's part, the same W numbers on all ranks, 0 allowed. Empty:
// the parts are equal.
// `tag`: compared, not selected by. Calls of the same shape that mean different things (the weights
// of one layer, of another) have different ones, so that ranks that issue them in different orders
// fail instead of mixing them up.
struct AllReduceOptions {
  ReduceOp op = ReduceOp::kSum;
  double factor = 1;
  int64_t tag = 0;
  std::optional<absl::Duration> timeout = {};
};
struct ReduceOptions {
  int root = 0;
  ReduceOp op = ReduceOp::kSum;
  double factor = 1;
  std::optional<absl::Duration> timeout = {};
};
struct BroadcastOptions {
  int root = 0;
  std::optional<absl::Duration> timeout = {};
};
struct AllGatherOptions {
  std::vector<int64_t> counts = {};
  int64_t tag = 0;
  std::optional<absl::Duration> timeout = {};
};
struct ReduceScatterOptions {
  ReduceOp op = ReduceOp::kSum;
  double factor = 1;
  std::vector<int64_t> counts = {};
  int64_t tag = 0;
  std::optional<absl::Duration> timeout = {};
};
struct GatherOptions {
  int root = 0;
  std::vector<int64_t> counts = {};
  std::optional<absl::Duration> timeout = {};
};
struct ScatterOptions {
  int root = 0;
  std::vector<int64_t> counts = {};
  std::optional<absl::Duration> timeout = {};
};
struct AllToAllOptions {
  // What this rank sends to each rank and receives from each: both, or neither. What rank a sends
  // to rank b is what b receives from a.
  std::vector<int64_t> send_counts = {};
  std::vector<int64_t> receive_counts = {};
  std::optional<absl::Duration> timeout = {};
};
struct BarrierOptions {
  std::optional<absl::Duration> timeout = {};
};
struct TransferOptions {
  // Compared, not selected by: transfers of a pair meet in order, and their tags must agree. The
  // number of a micro-batch makes a slip of the order an error instead of wrong data.
  int64_t tag = 0;
  std::optional<absl::Duration> timeout = {};
};

// One of Communicator::Batch.
struct Transfer {
  bool sends = true;
  Tensor tensor;
  int peer = 0;
  int64_t tag = 0;

  static Transfer Send(Tensor tensor, int peer, int64_t tag = 0) {
    return {true, std::move(tensor), peer, tag};
  }
  static Transfer Recv(Tensor tensor, int peer, int64_t tag = 0) {
    return {false, std::move(tensor), peer, tag};
  }
};

// A validated collective on its way to a backend.
struct Collective {
  Signature signature;
  Tensor input;   // undefined where a rank only receives: Recv, Broadcast and Scatter off the root
  Tensor output;  // undefined where a rank only sends; the same tensor as `input` when in place
  absl::Duration timeout;
  // Uneven: W counts; for AllToAll those sent and then those received.
  std::vector<int64_t> counts;
  // Runs after the data has come, before the work is complete; may be null.
  std::function<void()> finish;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_COLLECTIVE_H_
