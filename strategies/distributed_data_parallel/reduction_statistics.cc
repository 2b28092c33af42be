// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/reduction_statistics.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "lockstep/base/clock.h"

namespace lockstep::strategies {

double ReductionStatistics::HiddenShare() const {
  if (communication_seconds <= 0) return 1;
  return std::clamp(1 - exposed_seconds / communication_seconds, 0.0, 1.0);
}

std::string ReductionStatistics::ToString() const {
  std::string text = absl::StrFormat(
      "step %.1f ms: %.1f computing, %.1f communicating, %.1f of it exposed; %d bytes in %d "
      "buckets, received %d, sent %d",
      step_seconds * 1e3, compute_seconds * 1e3, communication_seconds * 1e3, exposed_seconds * 1e3,
      bytes, buckets.size(), bytes_received, bytes_sent);
  if (staleness > 0) absl::StrAppendFormat(&text, "; gradients of %d steps ago", staleness);
  return text;
}

void BucketClock::Start(size_t buckets) { times_ = std::make_shared<std::vector<Times>>(buckets); }

void BucketClock::Issued(size_t index, int64_t bytes, const comm::Work& work) {
  Times& times = (*times_)[index];
  times.bytes = bytes;
  times.issued_ns = MonotonicNanoseconds();
  // Shared: a work that fails may complete when nobody looks any more.
  work.OnComplete([all = times_, index](const Error*) {
    (*all)[index].completed_ns.store(MonotonicNanoseconds(), std::memory_order_relaxed);
  });
}

void BucketClock::Report(ReductionStatistics* statistics) const {
  statistics->buckets.clear();
  statistics->communication_seconds = 0;
  if (times_ == nullptr) return;  // no pass yet
  int64_t last_ns = 0;
  for (const Times& times : *times_) {
    const int64_t completed_ns = times.completed_ns.load(std::memory_order_relaxed);
    BucketStatistics bucket;
    bucket.bytes = times.bytes;
    bucket.latency_seconds = static_cast<double>(completed_ns - times.issued_ns) * 1e-9;
    bucket.busy_seconds = static_cast<double>(std::max<int64_t>(
                              0, completed_ns - std::max(times.issued_ns, last_ns))) *
                          1e-9;
    last_ns = std::max(last_ns, completed_ns);
    statistics->communication_seconds += bucket.busy_seconds;
    statistics->buckets.push_back(bucket);
  }
}

}  // namespace lockstep::strategies
