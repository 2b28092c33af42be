// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Where the time of a step went, as the reduction of gradients sees it. Always on: a note for each
// gradient and two readings of the clock for each bucket, some microseconds a step.
//
//   const ReductionStatistics statistics = ddp.statistics();
//   LOG(INFO) << statistics.ToString();
//   // step 41.2 ms: 38.0 computing, 9.6 communicating, 3.2 of it exposed; 1835008 bytes in 2
//   // buckets, received 1835008, sent 1835008
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_REDUCTION_STATISTICS_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_REDUCTION_STATISTICS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/work.h"

namespace lockstep::strategies {

// What happened in a backward, in order. `index` is a parameter's (of those that are reduced) or a
// bucket's.
struct ReducerEvent {
  enum class Kind { kGradientReady, kReduceIssued, kReduceWaited };
  Kind kind;
  int64_t index;
  friend bool operator==(const ReducerEvent&, const ReducerEvent&) = default;
};

struct BucketStatistics {
  int64_t bytes = 0;           // of the gradients in it
  double latency_seconds = 0;  // from its issue to the average
  // Of that, when it was the oldest in flight: the rest it waited for buckets before it.
  double busy_seconds = 0;
  // bytes / busy_seconds; waiting for ranks that come late is part of it.
  double BytesPerSecond() const { return busy_seconds > 0 ? bytes / busy_seconds : 0; }
};

// Of one synchronised backward on this rank.
struct ReductionStatistics {
  // One a bucket, and what ranks had to tell beyond; not what a hook issues besides.
  int64_t collectives = 0;
  int64_t bytes = 0;  // of the buckets
  // Moved by the group in this backward, whoever asked (comm::Traffic).
  int64_t bytes_received = 0;
  int64_t bytes_sent = 0;
  double exposed_seconds = 0;        // that backward waited for communication at its end
  double communication_seconds = 0;  // that a bucket was in flight
  // Since the end of the last synchronised backward; 0 in the first.
  double step_seconds = 0;
  // Of that, everything but exposed_seconds.
  double compute_seconds = 0;
  // How many steps ago the gradients that this backward left were made.
  int64_t staleness = 0;
  std::vector<BucketStatistics> buckets;
  std::vector<ReducerEvent> events;

  // Share of communication_seconds that was hidden behind backward; 1 when there was none.
  double HiddenShare() const;
  // One line, as above.
  std::string ToString() const;
};

// The times of a pass's buckets. Completions come from communication threads.
class BucketClock {
 public:
  void Start(size_t buckets);
  // The work of bucket `index` has just been issued.
  void Issued(size_t index, int64_t bytes, const comm::Work& work);
  // Fills buckets and communication_seconds, with nothing before the first Start(). All works are
  // complete.
  void Report(ReductionStatistics* statistics) const;

 private:
  struct Times {
    int64_t bytes = 0;
    int64_t issued_ns = 0;
    std::atomic<int64_t> completed_ns{0};
  };
  std::shared_ptr<std::vector<Times>> times_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_REDUCTION_STATISTICS_H_
