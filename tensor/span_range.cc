// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/span_range.h"

#include "lockstep/base/clock.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {

SpanRange::SpanRange(absl::string_view name)
    : observer_(CurrentThreadState().observer), name_(name) {
  if (observer_) start_ns_ = MonotonicNanoseconds();
}
SpanRange::~SpanRange() {
  if (!observer_) return;
  observer_->OnSpan({SpanKind::kRange, name_, start_ns_, MonotonicNanoseconds(), 0, 0});
}

}  // namespace lockstep
