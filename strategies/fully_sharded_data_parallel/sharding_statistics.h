// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a sharded model has communicated on this rank, and how much of it computation has hidden.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_SHARDING_STATISTICS_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_SHARDING_STATISTICS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace lockstep::strategies {

// Sums since the start or the last reset. `seconds` run from the issue of a collective to its
// completion; `exposed` is the part of it that the training thread waited.
struct ShardingTotals {
  int64_t gathers = 0;
  int64_t gathered_bytes = 0;  // of whole units
  double gather_seconds = 0;
  double exposed_gather_seconds = 0;
  // The most that were issued and not waited for at one time. Units are asked for ahead, so this is
  // beside the one in use, whose gather has been waited for.
  int64_t peak_gathers_in_flight = 0;
  int64_t reductions = 0;
  int64_t reduced_bytes = 0;
  double exposed_reduce_seconds = 0;

  // Of gathers, in [0, 1]; 1 without any.
  double hidden_gather_share() const {
    return gather_seconds > 0 ? 1 - exposed_gather_seconds / gather_seconds : 1;
  }
};

// Written by the training thread, gather times also by the group's.
class ShardingStatistics {
 public:
  ShardingTotals totals() const {
    ShardingTotals result = totals_;
    result.gather_seconds = 1e-9 * static_cast<double>(gather_ns_.load());
    return result;
  }
  void Reset() {
    totals_ = {};
    gather_ns_ = 0;
  }

  void CountGather(int64_t bytes) {
    ++totals_.gathers;
    totals_.gathered_bytes += bytes;
    totals_.peak_gathers_in_flight = std::max(totals_.peak_gathers_in_flight, ++in_flight_);
  }
  void CountGatherWaitedFor() { --in_flight_; }
  void AddGatherNanoseconds(int64_t ns) { gather_ns_ += ns; }
  void AddExposedGather(double seconds) { totals_.exposed_gather_seconds += seconds; }
  void CountReduction(int64_t bytes) {
    ++totals_.reductions;
    totals_.reduced_bytes += bytes;
  }
  void AddExposedReduce(double seconds) { totals_.exposed_reduce_seconds += seconds; }

 private:
  ShardingTotals totals_;
  int64_t in_flight_ = 0;
  std::atomic<int64_t> gather_ns_{0};
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_SHARDING_STATISTICS_H_
