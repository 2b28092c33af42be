// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/pipeline/timeline.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::pipeline {
namespace {

std::string Text(const Span& span) {
  return absl::StrCat(ToString(span.action), " on rank ", span.rank, " from ", span.start_seconds,
                      " to ", span.end_seconds, " s");
}

void CheckSpan(const Span& span, int ranks) {
  if (span.rank < 0 || span.rank >= ranks) {
    throw InvalidArgumentError(
        absl::StrCat("MakeTimeline: ", Text(span), ": there are ", ranks, " ranks"));
  }
  if (span.action.stage < 0 || !(span.start_seconds <= span.end_seconds)) {
    throw InvalidArgumentError(
        absl::StrCat("MakeTimeline: ", Text(span), ": no stage, or an end before the start"));
  }
}

// Ends what F of the same stage and micro-batch began.
bool Releases(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight;
}

std::vector<int> PeakInFlight(const std::vector<Span>& spans) {
  int stages = 0;
  std::set<std::pair<int, int>> released;
  for (const Span& span : spans) {
    stages = std::max(stages, span.action.stage + 1);
    if (Releases(span.action.kind)) released.emplace(span.action.stage, span.action.micro_batch);
  }
  std::vector<int> peak(static_cast<size_t>(stages), 0);
  std::vector<int> now = peak;
  for (const Span& span : spans) {
    const auto stage = static_cast<size_t>(span.action.stage);
    if (span.action.kind == ActionKind::kForward) {
      peak[stage] = std::max(peak[stage], now[stage] + 1);
      now[stage] += released.count({span.action.stage, span.action.micro_batch}) > 0 ? 1 : 0;
    } else if (Releases(span.action.kind)) {
      --now[stage];
    }
  }
  return peak;
}

// By rank and time. A computation that takes no time stands before one that begins as it ends, and
// equal ones stay in their order (std::stable_sort is deprecated under clang with this library).
std::vector<Span> Sorted(const std::vector<Span>& spans) {
  std::vector<size_t> order(spans.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) {
    return std::tuple(spans[i].rank, spans[i].start_seconds, spans[i].end_seconds, i);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  std::vector<Span> sorted;
  for (const size_t i : order) sorted.push_back(spans[i]);
  return sorted;
}

}  // namespace

Timeline MakeTimeline(std::vector<Span> spans, int ranks) {
  double origin = std::numeric_limits<double>::infinity();
  double end = 0;
  for (const Span& span : spans) {
    CheckSpan(span, ranks);
    if (!IsTransfer(span.action.kind)) origin = std::min(origin, span.start_seconds);
  }
  spans = Sorted(spans);

  Timeline timeline;
  timeline.ranks = ranks;
  timeline.busy_seconds.resize(static_cast<size_t>(ranks), 0.0);
  const Span* previous = nullptr;
  for (const Span& span : spans) {
    if (IsTransfer(span.action.kind)) continue;
    if (previous != nullptr && previous->rank == span.rank &&
        span.start_seconds < previous->end_seconds) {
      throw InvalidArgumentError(
          absl::StrCat("MakeTimeline: ", Text(span), ": it overlaps ", Text(*previous)));
    }
    timeline.busy_seconds[static_cast<size_t>(span.rank)] += span.end_seconds - span.start_seconds;
    end = std::max(end, span.end_seconds - origin);
    previous = &span;
  }
  if (previous == nullptr) origin = 0;
  timeline.makespan_seconds = end;
  double idle = 0;
  for (const double busy : timeline.busy_seconds) {
    timeline.idle_seconds.push_back(end - busy);
    idle += end - busy;
  }
  if (end > 0) timeline.bubble = idle / (ranks * end);
  timeline.peak_in_flight = PeakInFlight(spans);
  for (Span& span : spans) {
    span.start_seconds -= origin;
    span.end_seconds -= origin;
  }
  timeline.spans = std::move(spans);
  return timeline;
}

}  // namespace lockstep::pipeline
