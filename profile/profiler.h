// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Where the time of a step goes: records kernels, collectives and the program's own ranges.
//
//   auto profiler = std::make_shared<profile::Profiler>();
//   {
//     profile::ProfileScope scope(profiler);
//     profile::Range range("step");
//     Step();
//   }
//   std::cout << profiler->Table(profile::MeasureMachineLimits());
//   profiler->WriteTrace("step.json");   // opens in Perfetto and in chrome://tracing
//
// The scope is part of thread state: what runs later or elsewhere on behalf of this thread
// (backward on other devices, collectives, copies) is recorded as well, also when it ends after
// the scope. Thread-safe.
#ifndef LOCKSTEP_PROFILE_PROFILER_H_
#define LOCKSTEP_PROFILE_PROFILER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/profile/machine_limits.h"
#include "lockstep/tensor/span_observer.h"
#include "lockstep/tensor/span_range.h"

namespace lockstep::profile {

struct RecordedSpan {
  SpanKind kind = SpanKind::kKernel;
  std::string name;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  double flops = 0;
  int64_t bytes = 0;
  int thread = 0;  // the system's id
};

class Profiler : public SpanObserver {
 public:
  void OnSpan(const Span& span) override;

  // In the order in which they ended.
  std::vector<RecordedSpan> Spans() const;
  void Clear();

  // One line a kernel, collective or range name, by total time: calls, milliseconds, share of the
  // time between the first start and the last end, GB/s and GFLOP/s with their shares of `limits`.
  // Kernels of several threads may add up to more than the time that has passed.
  std::string Table(const MachineLimits& limits) const;

  // Writes the spans as a trace in the JSON format of chrome://tracing: one lane a thread, those of
  // collectives named "communication". `process` is shown as the process's id: give the rank.
  // Times are those of the host's monotonic clock, so traces of ranks on one host line up. Throws
  // Unavailable when the file cannot be written.
  void WriteTrace(const std::string& path, int process = 0) const;

 private:
  mutable std::mutex mutex_;
  std::vector<RecordedSpan> spans_;
};

// Scope: what this thread does, and what is done for it, is reported to `observer`.
class ProfileScope {
 public:
  explicit ProfileScope(std::shared_ptr<SpanObserver> observer);
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  std::shared_ptr<SpanObserver> saved_;
};

// Scope: a part of the program's work, reported to the observer of the thread if there is one.
using Range = SpanRange;

}  // namespace lockstep::profile

#endif  // LOCKSTEP_PROFILE_PROFILER_H_
