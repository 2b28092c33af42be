// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// SpanRange: a part of the program's work, reported to this thread's observer of spans
// (span_observer.h) if there is one.
//
//   {
//     SpanRange range("forward");
//     loss = model.Loss(ids, targets);
//   }
#ifndef LOCKSTEP_TENSOR_SPAN_RANGE_H_
#define LOCKSTEP_TENSOR_SPAN_RANGE_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "lockstep/tensor/span_observer.h"

namespace lockstep {

// Scope. Reports to the observer of its beginning, also when it ends after the observer's scope.
class SpanRange {
 public:
  // `name` outlives it.
  explicit SpanRange(absl::string_view name);
  ~SpanRange();
  SpanRange(const SpanRange&) = delete;
  SpanRange& operator=(const SpanRange&) = delete;

 private:
  std::shared_ptr<SpanObserver> observer_;
  absl::string_view name_;
  int64_t start_ns_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_SPAN_RANGE_H_
