// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Spans of time that kernels, collectives and programs report to an observer in thread state. Off
// unless a scope installs one (profile/profiler.h): then a kernel costs two readings of the clock.
#ifndef LOCKSTEP_TENSOR_SPAN_OBSERVER_H_
#define LOCKSTEP_TENSOR_SPAN_OBSERVER_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace lockstep {

enum class SpanKind : uint8_t {
  kKernel,         // one op's kernel, on the thread that called it
  kCommunication,  // one collective, on the group's communication thread
  kRange,          // what the program calls a part of its work
};

struct Span {
  SpanKind kind = SpanKind::kKernel;
  absl::string_view name;  // valid during the call only
  int64_t start_ns = 0;    // base/clock.h
  int64_t end_ns = 0;
  double flops = 0;
  int64_t bytes = 0;  // read and written, or of the largest tensor of a collective
};

// Called from many threads at a time.
class SpanObserver {
 public:
  virtual ~SpanObserver() = default;
  virtual void OnSpan(const Span& span) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_SPAN_OBSERVER_H_
